//! Gives elided lifetimes of a type a name.

use syn::visit_mut::{self, VisitMut};
use syn::{Lifetime, Type, TypeReference};

/// The type with every elided or named lifetime replaced, for example by `'a` or `'static`.
pub(crate) fn named(mut ty: Type, lifetime: &str) -> Type {
    let lifetime = Lifetime::new(lifetime, proc_macro2::Span::call_site());
    Name(lifetime).visit_type_mut(&mut ty);
    ty
}

struct Name(Lifetime);

impl VisitMut for Name {
    fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
        reference.lifetime = Some(self.0.clone());
        visit_mut::visit_type_reference_mut(self, reference);
    }

    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if lifetime.ident != "static" {
            *lifetime = self.0.clone();
        }
    }
}
