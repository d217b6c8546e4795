//! Names of things, each its own type.

use std::fmt;
use std::sync::Arc;

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

macro_rules! named {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text of the name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl<T: AsRef<str>> From<T> for $name {
            fn from(text: T) -> Self {
                $name(Arc::from(text.as_ref()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

numbered! {
    /// A stage of a plan: its index there.
    StageId(u32), "stage "
}
numbered! {
    /// One of the P shards of a job.
    ShardId(u32), "shard "
}
numbered! {
    /// A bundle of one shard, unique while the shard's loop lives.
    BundleId(u64), "bundle "
}
numbered! {
    /// An environment of a plan: its index there.
    EnvironmentId(u32), "environment "
}
named! {
    /// A job, unique for ever in one ledger.
    JobId
}
named! {
    /// A transform, by its id in the submitted pipeline.
    TransformId
}
