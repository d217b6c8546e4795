//! `#[derive(Outputs)]`, and the struct that `#[dofn]` makes for several outputs.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, Result, Type};

pub(crate) fn expand(item: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(item)?;
    let fields = fields(&input, "outputs", "output")?;
    Ok(implementation(&input.ident, &fields))
}

/// Names and types of a struct's fields, of which there is one for each `one`.
pub(crate) fn fields(input: &DeriveInput, what: &str, one: &str) -> Result<Vec<(Ident, Type)>> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, format!("{what} are a struct with one field per {one}")));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(&input.ident, format!("{what} are a struct with named fields")));
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(&input.generics, format!("{what} of a DoFn have no parameters")));
    }
    let fields = fields.named.iter();
    Ok(fields.map(|field| (field.ident.clone().expect("fields are named"), field.ty.clone())).collect())
}

/// `impl Outputs` for a struct of outputs.
pub(crate) fn implementation(name: &Ident, fields: &[(Ident, Type)]) -> TokenStream {
    let names: Vec<&Ident> = fields.iter().map(|(name, _)| name).collect();
    let types: Vec<&Type> = fields.iter().map(|(_, ty)| ty).collect();
    let tags = names.iter().enumerate().map(|(index, name)| match index {
        0 => quote!(::purlin::output::MAIN_TAG),
        _ => {
            let tag = name.to_string();
            let tag = tag.trim_start_matches("r#");
            quote!(#tag)
        }
    });
    quote! {
        impl ::purlin::Outputs for #name {
            const SPECS: &'static [::purlin::output::OutputSpec] = &[#(
                ::purlin::output::OutputSpec { tag: #tags, coder: <#types as ::purlin::Outputs>::SPECS[0].coder },
            )*];

            fn new() -> Self {
                #name { #(#names: ::std::default::Default::default(),)* }
            }

            #[inline]
            fn each(&mut self, mut visit: impl ::std::ops::FnMut(&mut ::purlin::output::RawOutput)) {
                #(visit(self.#names.raw());)*
            }
        }
    }
}
