//! Between Ruby's values and the core's: durations, interests, errors.

use std::{io, time::Duration};

use magnus::{Error, ExceptionClass, Float, Integer, Ruby, Value, prelude::*};
use reactor::Interest;

use crate::raw::{self, methods};

/// nil is for ever; otherwise any non-negative Numeric, with the errors of Kernel#sleep.
#[inline(never)]
pub fn timeout(value: Value) -> Result<Option<Duration>, Error> {
    if value.is_nil() {
        return Ok(None);
    }
    interval(value).map(Some)
}

/// As [`timeout`], but negative counts as zero and infinity as for ever.
pub fn lenient_timeout(value: Value) -> Result<Option<Duration>, Error> {
    let seconds = Float::from_value(value).map(Float::to_f64).or_else(|| {
        let integer = Integer::from_value(value)?;
        integer.to_i64().ok().map(|seconds| seconds as f64)
    });
    match seconds {
        Some(seconds) if seconds < 0.0 => Ok(Some(Duration::ZERO)),
        Some(f64::INFINITY) => Ok(None),
        _ => timeout(value),
    }
}

/// A non-negative Numeric number of seconds.
pub fn interval(value: Value) -> Result<Duration, Error> {
    if let Some(float) = Float::from_value(value) {
        let seconds = float.to_f64();
        if (0.0..1e9).contains(&seconds) {
            // Rounded up to the nanosecond: nothing ever ends early.
            return Ok(reactor::seconds(seconds).unwrap_or(Duration::MAX));
        }
    } else if let Some(integer) = Integer::from_value(value) {
        if let Ok(seconds) = integer.to_u32() {
            return Ok(Duration::from_secs(seconds.into()));
        }
    }
    raw::time_interval(value)
}

/// Ruby's event mask: IO::READABLE, IO::PRIORITY, IO::WRITABLE.
pub fn interest(ruby: &Ruby, events: Value) -> Result<Interest, Error> {
    let small = methods::small_integer(events);
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

/// The Errno exception for a failed system call.
#[cold]
#[inline(never)]
pub fn system_error(ruby: &Ruby, error: &io::Error) -> Error {
    errno(ruby, error.raw_os_error().unwrap_or(0), None)
}

/// The Errno exception with this number, for what has failed.
#[cold]
#[inline(never)]
pub fn errno(ruby: &Ruby, code: i32, what: Option<&str>) -> Error {
    let made = ruby
        .class_object()
        .const_get::<_, ExceptionClass>("SystemCallError")
        .and_then(|class| class.new_instance((what, code)));
    match made {
        Ok(exception) => Error::from(exception),
        Err(error) => error,
    }
}
