//! Conversions between Ruby's values and the core's: durations, interests, numbers, backend names.

use std::{ffi::c_long, time::Duration};

use magnus::{
    Error, Fixnum, Float, Integer, RBignum, RHash, RString, Ruby, Symbol, TryConvert, Value,
    prelude::*,
    rb_sys::{AsRawValue, FromRawValue},
};
use reactor::{Backend, Interest};
use reactor_scheduler::system::errno::Errno;

use crate::ruby::{
    call::protected,
    error::{self, argument_error},
};

/// Whether converting this limit calls no Ruby code.
pub fn is_simple(limit: Value) -> bool {
    Fixnum::from_value(limit).is_some() || limit.is_nil() || Float::from_value(limit).is_some()
}

/// nil means no limit; otherwise any non-negative Numeric, with the errors of Kernel#sleep.
pub fn timeout(value: Value) -> Result<Option<Duration>, Error> {
    if value.is_nil() {
        return Ok(None);
    }
    interval(value).map(Some)
}

/// A limit that Queue#pop or Thread#join has accepted: nil means none; anything else is a Float or has `to_f`. Negative
/// numbers count as zero. [`Duration::MAX`] for infinity, NaN, and anything else beyond the clock.
pub fn lenient_timeout(value: Value) -> Result<Option<Duration>, Error> {
    if value.is_nil() {
        return Ok(None);
    }
    f64::try_convert(value).map(lenient).map(Some)
}

/// Like [`lenient_timeout`], for the limit of Timeout.timeout. Ruby adds that limit to a Float, so non-numbers must
/// have `coerce`.
pub fn added_timeout(value: Value) -> Result<Option<Duration>, Error> {
    if is_simple(value) {
        return lenient_timeout(value);
    }
    let zero = Ruby::get_with(value).float_from_f64(0.0);
    lenient_timeout(zero.funcall("+", (value,))?)
}

fn lenient(seconds: f64) -> Duration {
    let negative = seconds < 0.0;
    let invalid = if negative {
        Duration::ZERO
    } else {
        Duration::MAX
    };
    reactor_scheduler::system::seconds::seconds(seconds).unwrap_or(invalid)
}

/// A non-negative Numeric number of seconds, with the errors of Kernel#sleep: TypeError, ArgumentError, FloatDomainError,
/// RangeError.
pub fn interval(value: Value) -> Result<Duration, Error> {
    // Integers that no process outlives, without calling Ruby.
    if let Some(integer) = Fixnum::from_value(value) {
        if let Ok(seconds) = u32::try_from(integer.to_i64()) {
            return Ok(Duration::from_secs(seconds.into()));
        }
    } else if let Some(float) = Float::from_value(value) {
        let seconds = float.to_f64();
        if (0.0..1e9).contains(&seconds) {
            // Rounded up to the nanosecond, so nothing ends early.
            return Ok(
                reactor_scheduler::system::seconds::seconds(seconds).unwrap_or(Duration::MAX)
            );
        }
    }
    let mut span = rb_sys::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the exception raised for an invalid interval is caught.
    protected(|| span = unsafe { rb_sys::rb_time_timespec_interval(value.as_raw()) })?;
    Ok(Duration::new(span.tv_sec as u64, span.tv_nsec as u32))
}

/// `Reactor::Internal.seconds(duration)`: an [`interval`] as an Integer, or as a Float if it has a fraction.
pub fn seconds(ruby: &Ruby, duration: Value) -> Result<Value, Error> {
    let interval = interval(duration)?;
    Ok(match interval.subsec_nanos() {
        0 => ruby.integer_from_u64(interval.as_secs()).as_value(),
        _ => ruby.float_from_f64(interval.as_secs_f64()).as_value(),
    })
}

/// Ruby's event mask: IO::READABLE, IO::PRIORITY, IO::WRITABLE.
pub fn interest(ruby: &Ruby, events: Value) -> Result<Interest, Error> {
    let bits = Integer::try_convert(events)?;
    let known = bits.to_u8().ok().and_then(Interest::from_bits);
    known.ok_or_else(|| {
        let message = format!(
            "events must be a mask of IO::READABLE, IO::PRIORITY and IO::WRITABLE, not {bits}"
        );
        Error::new(ruby.exception_arg_error(), message)
    })
}

/// Any Integer that fits.
pub fn to_i64(value: Value) -> Result<i64, Error> {
    match Fixnum::from_value(value) {
        Some(small) => Ok(small.to_i64()),
        None => i64::try_convert(value),
    }
}

/// A byte count, clamped to the largest that fits; no buffer has bytes beyond that.
pub fn byte_count(value: Value) -> Result<i64, Error> {
    match Fixnum::from_value(value) {
        Some(small) => Ok(small.to_i64()),
        None => large_byte_count(value),
    }
}

#[cold]
fn large_byte_count(value: Value) -> Result<i64, Error> {
    match RBignum::from_value(value) {
        Some(large) if large.is_negative() => Ok(large.to_i64().unwrap_or(i64::MIN)),
        Some(large) => Ok(large.to_i64().unwrap_or(i64::MAX)),
        None => i64::try_convert(value),
    }
}

/// The return value of a transfer hook: bytes, or -errno.
pub fn hook_result(answer: Result<usize, Errno>) -> Value {
    let number = match answer {
        Ok(count) => count as i64,
        Err(errno) => -i64::from(errno.number()),
    };
    if size_of::<c_long>() < size_of::<i64>() {
        return error::ruby().integer_from_i64(number).as_value(); // Windows: a Fixnum has 31 bits
    }
    // SAFETY: 62 bits are enough for anything in memory, and for an errno.
    unsafe { Value::from_raw(rb_sys::LONG2FIX(number as c_long)) }
}

/// A Hash of counters, by name.
pub fn counters(ruby: &Ruby, rows: impl IntoIterator<Item = (&'static str, u64)>) -> RHash {
    let rows = rows.into_iter();
    ruby.hash_from_iter(rows.map(|(name, value)| (ruby.to_symbol(name), value)))
}

/// Copies a String's bytes.
pub fn bytes(string: RString) -> Vec<u8> {
    // SAFETY: copied at once, with no Ruby call in between.
    unsafe { string.as_slice() }.to_vec()
}

/// Parses a backend given as Symbol or String. ArgumentError with the reason if it is unknown or unavailable here.
fn backend(name: Value) -> Result<Backend, Error> {
    let text: String = match Symbol::from_value(name) {
        Some(symbol) => symbol.name()?.into_owned(),
        None => String::try_convert(name)?,
    };
    text.parse::<Backend>()
        .map_err(|error| argument_error(error.to_string()))
}

/// The backend passed to `initialize(backend = nil)`.
pub fn optional_backend(arguments: &[Value]) -> Result<Option<Backend>, Error> {
    match arguments {
        [] => Ok(None),
        [name] if name.is_nil() => Ok(None),
        [name] => backend(*name).map(Some),
        _ => Err(argument_error("too many arguments")),
    }
}
