//! `#[dofn]`, `#[derive(Outputs)]` and `#[derive(States)]` of the `purlin` crate, where they are documented and tested.

mod dofn;
mod lifetimes;
mod outputs;
mod states;

use proc_macro::TokenStream;

/// Makes a function a DoFn of the same name; the function itself stays callable.
///
/// ```text
/// fn name(element: In, out: &mut Output<T>)                     any number of outputs per element
/// fn name(element: In, out: &mut Output<T>, tag: &mut Output<U>)   further outputs, their tags are the names
/// fn name(element: In) -> T                                     one output per element
/// fn name(element: In) -> impl IntoIterator<Item = T>           as many as it yields
/// ```
///
/// A parameter `cx: &Context<'_>` may stand after the element. Each form may return `Result<..>` of what stands above
/// (for the first two, of `()`): an error refuses the element. `#[dofn(name = "...")]` gives another name to pipelines.
#[proc_macro_attribute]
pub fn dofn(arguments: TokenStream, item: TokenStream) -> TokenStream {
    dofn::expand(arguments.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct of outputs the outputs of a DoFn: the first field is the main output, the names of the others their tags.
#[proc_macro_derive(Outputs)]
pub fn outputs(item: TokenStream) -> TokenStream {
    outputs::expand(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct of states and timers those of a stateful DoFn; the names of the fields are their ids.
#[proc_macro_derive(States)]
pub fn states(item: TokenStream) -> TokenStream {
    states::expand(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
