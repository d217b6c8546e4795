//! Beam's messages and services, and our own `purlin.v1`: Rust types generated from the `.proto` files under `proto/beam` and
//! `proto/purlin`.
//!
//! Nothing here interprets a message; that is the business of `plan`, `worker-harness` and `server`. The files under
//! `src/generated` are written by `cargo xtask codegen`; change the `.proto` files instead. `bytes` fields are
//! [`bytes::Bytes`], which share the received buffer, and maps are `BTreeMap`, which iterate in key order.

/// Pipelines: graph, coders, windowing, schemas, environments, metrics (`org.apache.beam.model.pipeline.v1`).
pub use generated::pipeline::v1 as pipeline;

/// The Job API and artifact services (`org.apache.beam.model.job_management.v1`).
pub use generated::job_management::v1 as job;

/// The Fn API and provisioning (`org.apache.beam.model.fn_execution.v1`).
pub use generated::fn_execution::v1 as fnapi;

/// Figures of jobs and stages beside the Job API: our own service (`purlin.v1`).
pub use generated::purlin::v1 as inspect;

/// Nested as the packages are, because generated code refers to other packages by relative path.
#[allow(missing_docs, unreachable_pub, rustdoc::all, clippy::all, clippy::allow_attributes_without_reason, reason = "generated")]
mod generated {
    pub mod pipeline {
        pub mod v1 {
            include!("generated/org.apache.beam.model.pipeline.v1.rs");
        }
    }
    pub mod job_management {
        pub mod v1 {
            include!("generated/org.apache.beam.model.job_management.v1.rs");
        }
    }
    pub mod fn_execution {
        pub mod v1 {
            include!("generated/org.apache.beam.model.fn_execution.v1.rs");
        }
    }
    pub mod purlin {
        pub mod v1 {
            include!("generated/purlin.v1.rs");
        }
    }
    /// Where our own package finds Beam's.
    pub mod org {
        pub mod apache {
            pub mod beam {
                pub mod model {
                    pub use super::super::super::super::job_management;
                }
            }
        }
    }
}
