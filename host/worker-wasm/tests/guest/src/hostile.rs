//! DoFns that fail, or try to harm their host.

use purlin::prelude::*;

/// Cannot be made.
#[expect(non_camel_case_types, reason = "as the functions")]
pub(crate) struct fail_setup;

impl DoFn for fail_setup {
    const NAME: &'static str = "fail_setup";
    type In<'a> = &'a [u8];
    type Out = ();

    fn setup(config: &[u8]) -> purlin::Result<Self> {
        Err(format!("{} bytes of configuration are not enough", config.len()).into())
    }

    fn process(&mut self, _element: &[u8], _cx: &Context<'_>, _out: &mut ()) -> purlin::Result<()> {
        Ok(())
    }
}

/// Never gets ready.
#[expect(non_camel_case_types, reason = "as the functions")]
pub(crate) struct slow_setup;

impl DoFn for slow_setup {
    const NAME: &'static str = "slow_setup";
    type In<'a> = &'a [u8];
    type Out = ();

    fn setup(_config: &[u8]) -> purlin::Result<Self> {
        loop {
            std::hint::spin_loop();
        }
    }

    fn process(&mut self, _element: &[u8], _cx: &Context<'_>, _out: &mut ()) -> purlin::Result<()> {
        Ok(())
    }
}

#[dofn]
pub(crate) fn crash(element: i64) -> i64 {
    100 / checked(element)
}

#[inline(never)]
fn checked(element: i64) -> i64 {
    assert!(element != 13, "thirteen is not supported");
    element + 1
}

#[dofn]
pub(crate) fn spin(element: &[u8]) -> &[u8] {
    if element == b"spin" {
        loop {
            std::hint::spin_loop();
        }
    }
    element
}

/// Asks for as many bytes as its element says.
#[dofn]
pub(crate) fn hog(element: i64) -> i64 {
    let hoard: Vec<u8> = vec![element as u8; element as usize];
    hoard.iter().map(|byte| i64::from(*byte)).sum()
}

/// Makes one element of as many bytes as its element says.
#[dofn]
pub(crate) fn flood(element: i64) -> Vec<u8> {
    vec![0; element as usize]
}

/// Makes as many elements as its element says.
#[dofn]
pub(crate) fn fan_out(element: i64) -> impl Iterator<Item = i64> {
    0..element
}

#[dofn]
pub(crate) fn recurse(element: i64) -> i64 {
    if element == 0 { 0 } else { 1 + std::hint::black_box(recurse as fn(i64) -> i64)(element - 1) }
}

#[dofn]
pub(crate) fn chatter(element: i64) {
    for number in 0..element {
        purlin::info!("message {number} {}", "x".repeat(100));
    }
}

/// Keeps as many bytes as its element says, for ever.
#[dofn]
pub(crate) fn forget(element: i64) {
    std::mem::forget(vec![1u8; element as usize]);
}

/// Tells the host things that are not true; the element says which.
pub(crate) struct Liar;

impl DoFn for Liar {
    const NAME: &'static str = "liar";
    type In<'a> = &'a str;
    type Out = Output<String>;

    fn setup(_config: &[u8]) -> purlin::Result<Self> {
        Ok(Liar)
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn process(&mut self, _lie: &str, _cx: &Context<'_>, _out: &mut Self::Out) -> purlin::Result<()> {
        Ok(())
    }

    #[cfg(target_arch = "wasm32")]
    fn process(&mut self, lie: &str, _cx: &Context<'_>, _out: &mut Self::Out) -> purlin::Result<()> {
        use purlin::bindings::purlin::dofn::host;
        use purlin::bindings::purlin::dofn::types::{Dictionary, Emitted, Rows};
        let none = || Dictionary { entries: Rows { bytes: Vec::new(), ends: Vec::new() }, index: Vec::new() };
        let mut emitted = Emitted {
            output: 0,
            values: Rows { bytes: b"\x01a".to_vec(), ends: vec![2] },
            origin: vec![0],
            timestamps: Vec::new(),
            windows: none(),
            panes: none(),
        };
        match lie {
            "output" => emitted.output = 7,
            "origin" => emitted.origin = vec![1000],
            "ends" => emitted.values.ends = vec![u32::MAX],
            "value" => emitted.values.bytes = b"\x05a".to_vec(),
            "time" => emitted.timestamps = vec![i64::MIN],
            "window" => emitted.windows.entries = Rows { bytes: vec![0x7f; 4], ends: vec![4] },
            "endless" => loop {
                host::emit(&Emitted {
                    values: Rows { bytes: Vec::new(), ends: Vec::new() },
                    origin: Vec::new(),
                    ..emitted.clone()
                });
            },
            truth => assert_eq!(truth, "truth"),
        }
        host::emit(&emitted);
        Ok(())
    }
}
