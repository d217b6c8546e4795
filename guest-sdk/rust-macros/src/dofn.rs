//! `#[dofn]`: a function becomes a type that implements `purlin::DoFn` and calls it.
//!
//! The type has no value constructor of the function's name, so both can share the name.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{
    Error, FnArg, GenericArgument, ItemFn, LitStr, Pat, PatType, PathArguments, Result, ReturnType, Type, TypeParamBound,
    parse::Parser,
};

use crate::lifetimes::named;

pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = syn::parse2(item)?;
    let signature = Signature::of(&function)?;
    let name = name_of(arguments, &function)?;
    let ident = &function.sig.ident;
    let visibility = &function.vis;
    let docs = function.attrs.iter().filter(|attribute| attribute.path().is_ident("doc"));
    let element = named(signature.element.clone(), "'a");
    let reads = if signature.context { quote!(ALL) } else { quote!(NOTHING) };
    let (out, outputs_struct) = signature.outputs();
    let call = signature.call(ident);
    Ok(quote! {
        #function

        #(#docs)*
        #[allow(non_camel_case_types, reason = "it is the function's name")]
        #visibility struct #ident {}

        const _: () = {
            #outputs_struct

            impl ::purlin::DoFn for #ident {
                const NAME: &'static str = #name;
                const READS: ::purlin::Reads = ::purlin::Reads::#reads;
                type In<'a> = #element;
                type Out = #out;

                fn setup(config: &[u8]) -> ::purlin::Result<Self> {
                    if !config.is_empty() {
                        return ::std::result::Result::Err(::std::convert::From::from(::std::concat!(#name, " takes no configuration")));
                    }
                    ::std::result::Result::Ok(#ident {})
                }

                #[inline]
                fn process<'a>(&mut self, element: Self::In<'a>, cx: &::purlin::Context<'_>, out: &mut Self::Out) -> ::purlin::Result<()> {
                    let _ = cx;
                    #call
                    ::std::result::Result::Ok(())
                }
            }
        };
    })
}

fn name_of(arguments: TokenStream, function: &ItemFn) -> Result<String> {
    let mut name = function.sig.ident.to_string().trim_start_matches("r#").to_owned();
    let parser = syn::meta::parser(|meta| {
        if !meta.path.is_ident("name") {
            return Err(meta.error("the only argument is name = \"...\""));
        }
        name = meta.value()?.parse::<LitStr>()?.value();
        Ok(())
    });
    parser.parse2(arguments)?;
    Ok(name)
}

/// What the function takes and returns.
struct Signature {
    element: Type,
    context: bool,
    /// Outputs that are parameters: name and `Output<T>`.
    parameters: Vec<(Ident, Type)>,
    /// Whether it returns a `Result`.
    fallible: bool,
    returned: Returned,
}

enum Returned {
    Nothing,
    One(Type),
    Many(Type),
}

impl Signature {
    fn of(function: &ItemFn) -> Result<Self> {
        let sig = &function.sig;
        if let Some(asyncness) = &sig.asyncness {
            return Err(Error::new_spanned(asyncness, "DoFns are not async"));
        }
        if sig.generics.type_params().next().is_some() {
            return Err(Error::new_spanned(&sig.generics, "a DoFn has no type parameters"));
        }
        let mut inputs = sig.inputs.iter();
        let element = match inputs.next() {
            Some(FnArg::Typed(first)) => (*first.ty).clone(),
            _ => return Err(Error::new_spanned(&sig.ident, "a DoFn takes an element")),
        };
        let (mut context, mut parameters) = (false, Vec::new());
        for input in inputs {
            match input {
                FnArg::Typed(input) if is_reference_to(&input.ty, "Context") && parameters.is_empty() && !context => {
                    context = true
                }
                FnArg::Typed(input) if is_reference_to(&input.ty, "Output") => parameters.push(output_parameter(input)?),
                other => {
                    return Err(Error::new_spanned(other, "after the element come `cx: &Context<'_>` and `out: &mut Output<T>`"));
                }
            }
        }
        let (fallible, returned) = returned(&sig.output)?;
        if !parameters.is_empty() && !matches!(returned, Returned::Nothing) {
            return Err(Error::new_spanned(&sig.output, "a DoFn with `Output` parameters returns nothing, or Result<()>"));
        }
        Ok(Signature { element, context, parameters, fallible, returned })
    }

    /// The type of all outputs, and the struct that has to be defined for it.
    fn outputs(&self) -> (TokenStream, TokenStream) {
        match (&self.returned, self.parameters.as_slice()) {
            (Returned::One(ty) | Returned::Many(ty), _) => {
                let ty = named(ty.clone(), "'static");
                (quote!(::purlin::Output<#ty>), quote!())
            }
            (Returned::Nothing, []) => (quote!(()), quote!()),
            (Returned::Nothing, [(_, only)]) => (quote!(#only), quote!()),
            (Returned::Nothing, several) => {
                let name = Ident::new("AllOutputs", proc_macro2::Span::call_site());
                let (names, types): (Vec<_>, Vec<_>) = several.iter().cloned().unzip();
                let implementation = crate::outputs::implementation(&name, several);
                let structure = quote! {
                    pub struct #name { #(#names: #types,)* }
                    #implementation
                };
                (quote!(#name), structure)
            }
        }
    }

    /// The statement that calls the function and emits what it returns.
    fn call(&self, ident: &Ident) -> TokenStream {
        let context = self.context.then(|| quote!(cx,));
        let outputs = match self.parameters.as_slice() {
            [] => quote!(),
            [_] => quote!(out),
            several => {
                let names = several.iter().map(|(name, _)| name);
                quote!(#(&mut out.#names),*)
            }
        };
        let raise = self.fallible.then(|| quote!(?));
        let call = quote!(#ident(element, #context #outputs) #raise);
        match &self.returned {
            Returned::Nothing => quote!(let _ = &out; #call;),
            Returned::One(_) => quote!(out.emit_borrowed(#call);),
            Returned::Many(_) => quote!(for made in #call { out.emit_borrowed(made); }),
        }
    }
}

fn output_parameter(input: &PatType) -> Result<(Ident, Type)> {
    let Pat::Ident(name) = &*input.pat else {
        return Err(Error::new_spanned(&input.pat, "an output needs a name"));
    };
    let Type::Reference(reference) = &*input.ty else {
        return Err(Error::new_spanned(&input.ty, "an output is `&mut Output<T>`"));
    };
    if reference.mutability.is_none() {
        return Err(Error::new_spanned(&input.ty, "an output is `&mut Output<T>`"));
    }
    Ok((name.ident.clone(), named((*reference.elem).clone(), "'static")))
}

fn is_reference_to(ty: &Type, name: &str) -> bool {
    let Type::Reference(reference) = ty else { return false };
    matches!(&*reference.elem, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == name))
}

/// Whether a `Result` is returned, and what is emitted.
fn returned(output: &ReturnType) -> Result<(bool, Returned)> {
    let ReturnType::Type(_, ty) = output else { return Ok((false, Returned::Nothing)) };
    if let Type::Path(path) = &**ty
        && let Some(last) = path.path.segments.last()
        && last.ident == "Result"
        && let PathArguments::AngleBracketed(arguments) = &last.arguments
        && let Some(GenericArgument::Type(ok)) = arguments.args.first()
    {
        return Ok((true, emitted(ok)?));
    }
    Ok((false, emitted(ty)?))
}

fn emitted(ty: &Type) -> Result<Returned> {
    match ty {
        Type::Tuple(tuple) if tuple.elems.is_empty() => Ok(Returned::Nothing),
        Type::ImplTrait(implementor) => {
            let item = implementor.bounds.iter().find_map(item_of);
            item.map(Returned::Many)
                .ok_or_else(|| Error::new_spanned(ty, "expected impl IntoIterator<Item = T> or impl Iterator<Item = T>"))
        }
        _ => Ok(Returned::One(ty.clone())),
    }
}

fn item_of(bound: &TypeParamBound) -> Option<Type> {
    let TypeParamBound::Trait(bound) = bound else { return None };
    let PathArguments::AngleBracketed(arguments) = &bound.path.segments.last()?.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::AssocType(assoc) if assoc.ident == "Item" => Some(assoc.ty.clone()),
        _ => None,
    })
}
