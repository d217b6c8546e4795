//! What went wrong in a guest, in words for the user who wrote it.

use wasmtime::{Trap, WasmBacktrace};

use crate::host::{HostState, LimitHit};
use crate::state::Refused;

/// Why a call did not return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It trapped, mostly after a panic.
    Trap,
    /// It ran out of time.
    Deadline,
    /// It wanted more memory or made more output than it may.
    Limit,
    /// It returned what the canonical ABI does not allow.
    Malformed,
}

/// A call that did not return.
pub(crate) struct Trouble {
    pub(crate) kind: Kind,
    pub(crate) message: String,
    /// Functions of the guest, innermost first; empty when there is no stack.
    pub(crate) backtrace: String,
}

/// Explains an error of wasmtime. The guest's last error message, if it logged one in this call, comes first.
pub(crate) fn explain(error: &wasmtime::Error, state: &mut HostState) -> Trouble {
    let refused = error.downcast_ref::<Refused>().and_then(|refused| match refused {
        Refused::Limit(limit) => Some(limit),
        _ => None,
    });
    let (kind, what) = if let Some(limit) = error.downcast_ref::<LimitHit>().or(refused) {
        (Kind::Limit, limit.to_string())
    } else if format!("{error:#}").contains("fuel allocated for hostcalls") {
        // wasmtime has no type for this one.
        (Kind::Limit, LimitHit::Output { max: state.options.output_bytes_max }.to_string())
    } else {
        match error.downcast_ref::<Trap>() {
            Some(Trap::Interrupt) => {
                (Kind::Deadline, format!("out of time: one call took longer than {} ms", state.options.call_deadline_ms))
            }
            Some(trap) => (Kind::Trap, format!("trap: {}", trap.to_string().trim_start_matches("wasm trap: "))),
            None => (Kind::Malformed, format!("the component broke its interface: {}", error.root_cause())),
        }
    };
    let said = state.last_error.take().map(|said| format!("{said}\n")).unwrap_or_default();
    let backtrace = error.downcast_ref::<WasmBacktrace>().map(frames).unwrap_or_default();
    Trouble { kind, message: format!("{said}{what}"), backtrace }
}

/// The functions of a stack, innermost first, without addresses. wasmtime shortens names only when it prints the whole.
fn frames(backtrace: &WasmBacktrace) -> String {
    let printed = backtrace.to_string();
    let names = printed.lines().filter_map(|line| line.split_once(" - ")).map(|(_, frame)| function(frame));
    let names = names.skip_while(|name| PANIC_MACHINERY.iter().any(|part| name.contains(part)));
    names.enumerate().map(|(number, name)| format!("\n  {number}: {name}")).collect()
}

/// Parts of names of what Rust runs between a panic and its trap.
const PANIC_MACHINERY: [&str; 4] = ["::panicking::", "::rust_panic", "::rust_begin_unwind", "::__rust_end_short_backtrace"];

/// `module.wasm!path[hash]::function::hash` without the module and the hashes.
fn function(frame: &str) -> String {
    let name = frame.split_once('!').map_or(frame, |(_, name)| name);
    let is_hash = |text: &str| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let name = match name.rsplit_once("::h") {
        Some((path, hash)) if is_hash(hash) => path,
        _ => name,
    };
    let mut parts = name.split('[');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(']') {
            Some((hash, rest)) if is_hash(hash) => plain.push_str(rest),
            _ => plain.extend(["[", part]),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::function;

    #[test]
    fn frames_are_named_as_in_the_source() {
        assert_eq!(function("guest.wasm!guest::split::process::h0123456789abcdef"), "guest::split::process");
        assert_eq!(function("guest.wasm!core[c5930c85a12de822]::panicking::panic_fmt"), "core::panicking::panic_fmt");
        assert_eq!(function("guest.wasm!<[u8] as guest[0123456789abcdef]::Element>::encode"), "<[u8] as guest::Element>::encode");
        assert_eq!(function("guest.wasm!<wasm function 12>"), "<wasm function 12>");
        assert_eq!(function("<unknown>!main::hello"), "main::hello");
    }
}
