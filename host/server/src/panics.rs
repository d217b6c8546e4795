//! A panic while a call is served is an INTERNAL error of that call, and nothing else ends.
//!
//! The layer lies around every service of the port. The panic's message and place go to the log by the panic hook; clients
//! get the message.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use tonic::body::Body;
use tonic::codegen::{Service, http};

use crate::refusal;

/// What a panic said.
pub fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Wraps a service; see the module.
#[derive(Clone, Debug)]
pub struct CatchPanic<S>(pub S);

impl<S> Service<http::Request<Body>> for CatchPanic<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        match catch_unwind(AssertUnwindSafe(|| self.0.call(request))) {
            Ok(answer) => Box::pin(AssertUnwindSafe(answer).catch_unwind().map(|caught| caught.unwrap_or_else(internal))),
            Err(panic) => Box::pin(std::future::ready(internal(panic))),
        }
    }
}

fn internal<E>(panic: Box<dyn Any + Send>) -> Result<http::Response<Body>, E> {
    let status = refusal::internal(format!("the server panicked, please report it: {}", text(&*panic)));
    Ok(status.into_http())
}
