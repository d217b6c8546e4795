//! A state that combines what is added to it.

use std::marker::PhantomData;
use std::rc::Rc;

use super::cells::Call;
use super::list::{clear, with_value, write_value};
use super::{Field, FieldKind, decoded};
use crate::{Decode, Element, Reader};

/// How inputs become one output. Combining is associative and commutative: in which order and how often accumulators are
/// merged makes no difference.
///
/// ```
/// use purlin::prelude::*;
///
/// struct Mean;
///
/// impl CombineFn for Mean {
///     type Input = i64;
///     type Accumulator = (i64, i64);
///     type Output = f64;
///
///     fn create_accumulator() -> (i64, i64) {
///         (0, 0)
///     }
///     fn add_input((sum, count): &mut (i64, i64), input: i64) {
///         *sum += input;
///         *count += 1;
///     }
///     fn merge_accumulators(into: &mut (i64, i64), other: (i64, i64)) {
///         into.0 += other.0;
///         into.1 += other.1;
///     }
///     fn extract_output((sum, count): (i64, i64)) -> f64 {
///         sum as f64 / count as f64
///     }
/// }
/// ```
pub trait CombineFn {
    /// What is added.
    type Input;
    /// What is kept.
    type Accumulator: Element + for<'a> Decode<'a>;
    /// What is read.
    type Output;

    /// That of no input.
    fn create_accumulator() -> Self::Accumulator;
    /// Adds an input.
    fn add_input(accumulator: &mut Self::Accumulator, input: Self::Input);
    /// Adds the inputs of another accumulator.
    fn merge_accumulators(into: &mut Self::Accumulator, other: Self::Accumulator);
    /// The output for what was added.
    fn extract_output(accumulator: Self::Accumulator) -> Self::Output;
}

/// One accumulator of a [`CombineFn`].
pub struct CombiningState<C> {
    call: Rc<Call>,
    state: u32,
    combine_fn: PhantomData<fn() -> C>,
}

impl<C: CombineFn> Field for CombiningState<C> {
    const KIND: FieldKind = FieldKind::Combining(C::Accumulator::CODER);

    fn attach(call: &Rc<Call>, number: u32) -> Self {
        CombiningState { call: call.clone(), state: number, combine_fn: PhantomData }
    }
}

impl<C: CombineFn> CombiningState<C> {
    /// Adds an input.
    #[inline]
    pub fn add(&mut self, input: C::Input) {
        let mut accumulator = self.accumulator();
        C::add_input(&mut accumulator, input);
        write_value(&self.call, self.state, &accumulator);
    }

    /// The output for all inputs since the state was cleared.
    ///
    /// # Panics
    /// When what is stored is not an accumulator.
    #[inline]
    pub fn read(&self) -> C::Output {
        C::extract_output(self.accumulator())
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        with_value(&self.call, self.state, <[u8]>::is_empty)
    }

    /// Forgets all inputs.
    pub fn clear(&mut self) {
        clear(&self.call, self.state);
    }

    #[inline]
    fn accumulator(&self) -> C::Accumulator {
        with_value(&self.call, self.state, |stored| {
            let mut reader = Reader::new(stored);
            if reader.is_empty() {
                return C::create_accumulator();
            }
            let mut accumulator = decoded(&mut reader, "an accumulator");
            while !reader.is_empty() {
                C::merge_accumulators(&mut accumulator, decoded(&mut reader, "an accumulator"));
            }
            accumulator
        })
    }
}

macro_rules! integer_combine_fn {
    ($name:ident, $doc:literal, $output:ty, $none:expr, $combine:expr, $extract:expr) => {
        #[doc = $doc]
        pub struct $name;

        impl CombineFn for $name {
            type Input = i64;
            type Accumulator = i64;
            type Output = $output;

            fn create_accumulator() -> i64 {
                $none
            }

            fn add_input(accumulator: &mut i64, input: i64) {
                *accumulator = $combine(*accumulator, input);
            }

            fn merge_accumulators(into: &mut i64, other: i64) {
                *into = $combine(*into, other);
            }

            fn extract_output(accumulator: i64) -> $output {
                $extract(accumulator)
            }
        }
    };
}

integer_combine_fn!(Sum, "The sum of integers; it wraps around.", i64, 0, i64::wrapping_add, |sum| sum);
integer_combine_fn!(Min, "The least of integers; `i64::MAX` for none.", i64, i64::MAX, i64::min, |min| min);
integer_combine_fn!(Max, "The greatest of integers; `i64::MIN` for none.", i64, i64::MIN, i64::max, |max| max);
