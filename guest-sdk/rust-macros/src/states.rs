//! `#[derive(States)]`.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{DeriveInput, Result};

use crate::outputs::fields;

pub(crate) fn expand(item: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(item)?;
    let fields = fields(&input, "states and timers", "state or timer")?;
    let name = &input.ident;
    let (names, types): (Vec<&Ident>, Vec<_>) = fields.iter().map(|(name, ty)| (name, ty)).unzip();
    let texts = names.iter().map(|name| name.to_string().trim_start_matches("r#").to_owned());
    let numbers = 0..fields.len();
    Ok(quote! {
        impl ::purlin::States for #name {
            const FIELDS: &'static [::purlin::state::FieldSpec] = &[#(
                ::purlin::state::FieldSpec { name: #texts, kind: <#types as ::purlin::state::Field>::KIND },
            )*];

            fn attach(call: &::std::rc::Rc<::purlin::state::Call>) -> Self {
                #name { #(
                    #names: {
                        const NUMBER: u32 = ::purlin::state::number(
                            <#name as ::purlin::States>::FIELDS,
                            #numbers,
                            <#types as ::purlin::state::Field>::KIND.is_timer(),
                        );
                        ::purlin::state::Field::attach(call, NUMBER)
                    },
                )* }
            }
        }
    })
}
