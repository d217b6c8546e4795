//! The URNs that the host tells apart (`beam-model` names; ours start with `purlin:`).

macro_rules! urns {
    ($($(#[$doc:meta])* $name:ident = $urn:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $urn;)*
    };
}

urns! {
    /// One empty element at the beginning of time.
    IMPULSE = "beam:transform:impulse:v1";
    /// A DoFn.
    PAR_DO = "beam:transform:pardo:v1";
    /// Union of collections.
    FLATTEN = "beam:transform:flatten:v1";
    /// Grouping by key and window.
    GROUP_BY_KEY = "beam:transform:group_by_key:v1";
    /// Window assignment, in the SDK.
    WINDOW_INTO = "beam:transform:window_into:v1";
    /// Says which windows merge, in the SDK.
    MERGE_WINDOWS = "beam:transform:merge_windows:v1";
    /// A scripted source for tests.
    TEST_STREAM = "beam:transform:teststream:v1";
    /// The primitive read of old SDKs.
    READ = "beam:transform:read:v1";
    /// Combine values by key.
    COMBINE_PER_KEY = "beam:transform:combine_per_key:v1";
    /// Combine all values.
    COMBINE_GLOBALLY = "beam:transform:combine_globally:v1";
    /// Combine the values of a group.
    COMBINE_GROUPED_VALUES = "beam:transform:combine_grouped_values:v1";
    /// First part of a lifted combine.
    COMBINE_PRECOMBINE = "beam:transform:combine_per_key_precombine:v1";
    /// Second part of a lifted combine.
    COMBINE_MERGE_ACCUMULATORS = "beam:transform:combine_per_key_merge_accumulators:v1";
    /// Third part of a lifted combine.
    COMBINE_EXTRACT_OUTPUTS = "beam:transform:combine_per_key_extract_outputs:v1";
    /// Turns elements into accumulators without combining.
    COMBINE_CONVERT_TO_ACCUMULATORS = "beam:transform:combine_per_key_convert_to_accumulators:v1";
    /// Breaks fusion and spreads elements.
    RESHUFFLE = "beam:transform:reshuffle:v1";
    /// Spreads elements by key.
    REDISTRIBUTE_BY_KEY = "beam:transform:redistribute_by_key:v1";
    /// Spreads elements.
    REDISTRIBUTE_ARBITRARILY = "beam:transform:redistribute_arbitrarily:v1";
    /// First part of a splittable DoFn.
    SDF_PAIR = "beam:transform:sdf_pair_with_restriction:v1";
    /// Second part of a splittable DoFn.
    SDF_SPLIT = "beam:transform:sdf_split_and_size_restrictions:v1";
    /// Third part of a splittable DoFn.
    SDF_PROCESS = "beam:transform:sdf_process_sized_element_and_restrictions:v1";
    /// Cuts a restriction short when draining.
    SDF_TRUNCATE = "beam:transform:sdf_truncate_sized_restrictions:v1";
    /// Where a bundle's input enters a process bundle descriptor.
    RUNNER_SOURCE = "beam:runner:source:v1";
    /// Where a bundle's output leaves a process bundle descriptor.
    RUNNER_SINK = "beam:runner:sink:v1";
    /// A side input read as a list.
    SIDE_INPUT_ITERABLE = "beam:side_input:iterable:v1";
    /// A side input read by key.
    SIDE_INPUT_MULTIMAP = "beam:side_input:multimap:v1";
    /// A harness in a container.
    ENV_DOCKER = "beam:env:docker:v1";
    /// A harness as a local process.
    ENV_PROCESS = "beam:env:process:v1";
    /// A harness behind a worker pool that already runs.
    ENV_EXTERNAL = "beam:env:external:v1";
    /// Whatever the runner prefers.
    ENV_DEFAULT = "beam:env:default:v1";
    /// A choice of environments.
    ENV_ANY_OF = "beam:env:anyof:v1";
    /// A WebAssembly component run in the host's own process.
    ENV_WASM = "purlin:env:wasm_component:v1";
    /// A DoFn inside a WebAssembly component: payload is a serialized name and configuration.
    DOFN_WASM = "purlin:dofn:wasm:v1";
}
