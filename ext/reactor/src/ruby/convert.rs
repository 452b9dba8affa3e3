//! Between Ruby's values and the core's: durations, interests, numbers, names of backends.

use std::time::Duration;

use magnus::{
    Error, Float, Integer, RHash, RString, Ruby, Symbol, TryConvert, Value,
    prelude::*,
    rb_sys::{AsRawValue, FromRawValue, protect},
};
use rb_sys::VALUE;
use reactor::{Backend, Interest};
use rustix::io::Errno;

use crate::ruby::error::argument_error;

/// nil is no limit; otherwise any non-negative Numeric, with the errors of Kernel#sleep.
pub fn timeout(value: Value) -> Result<Option<Duration>, Error> {
    if value.is_nil() {
        return Ok(None);
    }
    interval(value).map(Some)
}

/// The same for what is converted without a call of Ruby code and without an error; `None` for anything else.
pub fn simple_timeout(value: Value) -> Option<Option<Duration>> {
    if value.is_nil() {
        return Some(None);
    }
    simple_interval(value).map(Some)
}

/// As [`simple_timeout`] is to [`timeout`].
pub fn simple_lenient_timeout(value: Value) -> Option<Option<Duration>> {
    if value.is_nil() {
        return Some(None);
    }
    let seconds = match Float::from_value(value) {
        Some(float) => float.to_f64(),
        None => small_integer(value)? as f64,
    };
    Some(Some(lenient(seconds)))
}

/// A limit that Queue#pop and Thread#join have accepted: nil is none, any other is a Float or has `to_f`. A negative number
/// counts as zero. [`Duration::MAX`] for infinity, NaN, and every other number beyond the clock.
pub fn lenient_timeout(value: Value) -> Result<Option<Duration>, Error> {
    if value.is_nil() {
        return Ok(None);
    }
    f64::try_convert(value).map(lenient).map(Some)
}

/// The same for Timeout.timeout, which adds it to a Float: what is no number has `coerce`.
pub fn added_timeout(value: Value) -> Result<Option<Duration>, Error> {
    if value.is_nil() || Float::from_value(value).is_some() || small_integer(value).is_some() {
        return lenient_timeout(value);
    }
    let zero = Ruby::get_with(value).float_from_f64(0.0);
    lenient_timeout(zero.funcall("+", (value,))?)
}

fn lenient(seconds: f64) -> Duration {
    match reactor::seconds(seconds) {
        Ok(duration) => duration,
        Err(_) if seconds < 0.0 => Duration::ZERO,
        Err(_) => Duration::MAX,
    }
}

/// A non-negative Numeric number of seconds.
pub fn interval(value: Value) -> Result<Duration, Error> {
    simple_interval(value).map_or_else(|| time_interval(value), Ok)
}

/// A non-negative Float or Integer that is no larger than a process runs.
#[inline(always)]
fn simple_interval(value: Value) -> Option<Duration> {
    if let Some(float) = Float::from_value(value) {
        let seconds = float.to_f64();
        if (0.0..1e9).contains(&seconds) {
            // Rounded up to the nanosecond: nothing ever ends early.
            return Some(reactor::seconds(seconds).unwrap_or(Duration::MAX));
        }
    } else if let Some(integer) = Integer::from_value(value) {
        if let Ok(seconds) = integer.to_u32() {
            return Some(Duration::from_secs(seconds.into()));
        }
    }
    None
}

/// Ruby's event mask: IO::READABLE, IO::PRIORITY, IO::WRITABLE.
pub fn interest(ruby: &Ruby, events: Value) -> Result<Interest, Error> {
    let small = small_integer(events);
    if let Some(interest) = small.and_then(|bits| Interest::from_bits(u8::try_from(bits).ok()?)) {
        return Ok(interest);
    }
    let bits = Integer::try_convert(events)?;
    let known = bits.to_u8().ok().filter(|bits| *bits <= 7);
    known.and_then(Interest::from_bits).ok_or_else(|| {
        let message = format!(
            "events must be a mask of IO::READABLE, IO::PRIORITY and IO::WRITABLE, not {bits}"
        );
        Error::new(ruby.exception_arg_error(), message)
    })
}

/// A small Integer, without asking Ruby; `None` for anything else.
fn small_integer(value: Value) -> Option<i64> {
    let raw = value.as_raw();
    // SAFETY: only looks at the bits of the number itself.
    unsafe { rb_sys::FIXNUM_P(raw).then(|| rb_sys::FIX2LONG(raw) as i64) }
}

/// Any Integer that fits.
pub fn to_i64(value: Value) -> Result<i64, Error> {
    small_integer(value).map_or_else(|| i64::try_convert(value), Ok)
}

/// A number of bytes, or the nearest that fits: beyond it are no more bytes of any buffer.
pub fn byte_count(value: Value) -> Result<i64, Error> {
    small_integer(value).map_or_else(|| large_byte_count(value), Ok)
}

#[cold]
fn large_byte_count(value: Value) -> Result<i64, Error> {
    let Some(integer) = Integer::from_value(value) else {
        return i64::try_convert(value);
    };
    let is_negative: bool = integer.funcall("negative?", ())?;
    let nearest = if is_negative { i64::MIN } else { i64::MAX };
    Ok(integer.to_i64().unwrap_or(nearest))
}

/// The result of a transfer as the hooks give it: bytes, or -errno.
pub fn hook_result(answer: Result<usize, Errno>) -> Value {
    integer(match answer {
        Ok(count) => count as i64,
        Err(errno) => -i64::from(errno.raw_os_error()),
    })
}

/// An Integer that is small for certain: a count of bytes, or an errno.
fn integer(number: i64) -> Value {
    // SAFETY: 62 bits are enough for what is in memory.
    unsafe { Value::from_raw(rb_sys::LONG2FIX(number as std::ffi::c_long)) }
}

/// Any Numeric as a time span, with the errors Kernel#sleep has: TypeError, ArgumentError, FloatDomainError, RangeError.
fn time_interval(number: Value) -> Result<Duration, Error> {
    let mut span = rb_sys::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    protect(|| {
        // SAFETY: raises for anything that is no interval.
        span = unsafe { rb_sys::rb_time_timespec_interval(number.as_raw()) };
        rb_sys::Qnil as VALUE
    })?;
    Ok(Duration::new(span.tv_sec as u64, span.tv_nsec as u32))
}

/// A Hash of counters by their names.
pub fn counters(ruby: &Ruby, rows: impl IntoIterator<Item = (&'static str, u64)>) -> RHash {
    let rows = rows.into_iter();
    ruby.hash_from_iter(rows.map(|(name, value)| (ruby.to_symbol(name), value)))
}

/// A copy of a String's bytes.
pub fn bytes(string: RString) -> Vec<u8> {
    // SAFETY: copied at once, with no Ruby call in between.
    unsafe { string.as_slice() }.to_vec()
}

/// A backend by Symbol or String. ArgumentError with the reason if it is unknown or not available here.
fn backend(name: Value) -> Result<Backend, Error> {
    let text: String = match Symbol::from_value(name) {
        Some(symbol) => symbol.name()?.into_owned(),
        None => String::try_convert(name)?,
    };
    text.parse::<Backend>()
        .map_err(|error| argument_error(error.to_string()))
}

/// The backend named by the arguments of `initialize(backend = nil)`.
pub fn optional_backend(arguments: &[Value]) -> Result<Option<Backend>, Error> {
    match arguments {
        [] => Ok(None),
        [name] if name.is_nil() => Ok(None),
        [name] => backend(*name).map(Some),
        _ => Err(argument_error("too many arguments")),
    }
}
