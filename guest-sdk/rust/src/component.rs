//! The component itself: exports of world `purlin:dofn/stateful`, on top of [`crate::runtime`].
//!
//! Only the macro is here natively, where it checks names and types and exports nothing.

/// Makes the crate a component of these DoFns, stateful or not, and embeds its manifest.
///
/// ```
/// use purlin::prelude::*;
///
/// #[dofn]
/// fn double(n: i64) -> i64 {
///     n * 2
/// }
///
/// purlin::component!(double);
/// ```
#[macro_export]
macro_rules! component {
    ($($dofn:ty),+ $(,)?) => {
        const _: () = {
            #[allow(unused_imports, reason = "not all components have both kinds of DoFns")]
            use $crate::component::support::Stateful as _;
            const REGISTERED: &[$crate::runtime::Registered] = &[$($crate::component::support::Kind::<$dofn>::REGISTERED),+];
            const DESCRIPTIONS: [$crate::manifest::Description; REGISTERED.len()] =
                $crate::component::support::descriptions(REGISTERED);
            const LENGTH: usize = $crate::manifest::json_length(&DESCRIPTIONS);
            $crate::__export!(REGISTERED, DESCRIPTIONS, LENGTH);
        };
    };
}

/// For code made by [`component!`]: whether a type is a DoFn or a stateful one is found out where it is named.
#[doc(hidden)]
#[allow(missing_docs, reason = "only the macro uses it")]
pub mod support {
    use std::marker::PhantomData;

    use crate::manifest::Description;
    use crate::runtime::Registered;
    use crate::{DoFn, StatefulDoFn};

    pub struct Kind<D>(PhantomData<D>);

    impl<D: DoFn> Kind<D> {
        pub const REGISTERED: Registered = Registered::of::<D>();
    }

    /// What is not found at the type itself is looked for here.
    pub trait Stateful {
        const REGISTERED: Registered;
    }

    impl<D: StatefulDoFn> Stateful for Kind<D> {
        const REGISTERED: Registered = Registered::of_stateful::<D>();
    }

    pub const fn descriptions<const N: usize>(registered: &[Registered]) -> [Description; N] {
        let mut descriptions = [registered[0].description; N];
        let mut at = 0;
        while at < N {
            descriptions[at] = registered[at].description;
            at += 1;
        }
        descriptions
    }
}

#[cfg(not(target_arch = "wasm32"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    ($registered:ident, $descriptions:ident, $length:ident) => {
        const _: [u8; $length] = $crate::manifest::json(&$descriptions);
    };
}

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    ($registered:ident, $descriptions:ident, $length:ident) => {
        // Not `#[used]`: the section is made from any static, and the static itself need not be in memory too.
        #[unsafe(link_section = "purlin:manifest")]
        static MANIFEST: [u8; $length] = $crate::manifest::json(&$descriptions);

        enum Registry {}
        impl $crate::Exports for Registry {
            const REGISTERED: &'static [$crate::runtime::Registered] = $registered;
        }
        $crate::bindings::export!(Registry with_types_in $crate::bindings);
    };
}

#[cfg(target_arch = "wasm32")]
mod exports;
#[cfg(target_arch = "wasm32")]
mod keyed;
#[cfg(target_arch = "wasm32")]
pub use exports::*;
#[cfg(target_arch = "wasm32")]
pub use keyed::HostStore;

/// Generated from the WIT package.
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
#[allow(unsafe_code, missing_docs, unreachable_pub, clippy::all, reason = "generated code")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit/dofn-0.1.0",
        world: "stateful",
        pub_export_macro: true,
        default_bindings_module: "purlin::bindings",
        runtime_path: "::purlin::bindings_runtime",
    });
}
