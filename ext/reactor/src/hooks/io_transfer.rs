//! `io_read`, `io_write`, `io_pread` and `io_pwrite`, for each VERSION of the interface, which fixes the order of arguments.

use magnus::{Error, Ruby, Value, typed_data::Obj};
use rustix::io::Errno;

use crate::{
    control::scheduler::Scheduler,
    ruby::{
        convert::{byte_count, hook_result, to_i64},
        io_facts::IoFacts,
        method::{Receiver, wrong_number},
    },
    transfer::{
        request::{Direction, Request},
        stream::{Transfer, transfer},
    },
};

type Answer = Result<Value, Error>;

/// `io_read(io, buffer, length, offset)`
pub fn read<const VERSION: u8>(
    ruby: &Ruby,
    Receiver(this): Receiver<Scheduler>,
    arguments: &[Value],
) -> Answer {
    let (io, request) = given::<VERSION>(ruby, arguments)?;
    run(ruby, this, io, Direction::Read, &request, None)
}

/// `io_write(io, buffer, length, offset)`
pub fn write<const VERSION: u8>(
    ruby: &Ruby,
    Receiver(this): Receiver<Scheduler>,
    arguments: &[Value],
) -> Answer {
    let (io, request) = given::<VERSION>(ruby, arguments)?;
    run(ruby, this, io, Direction::Write, &request, None)
}

/// `io_pread(io, buffer, from, length, offset)`
pub fn pread<const VERSION: u8>(ruby: &Ruby, this: Obj<Scheduler>, arguments: &[Value]) -> Answer {
    let (io, request, file_offset) = given_at::<VERSION>(ruby, arguments)?;
    run_at(ruby, this, io, Direction::Read, &request, file_offset)
}

/// `io_pwrite(io, buffer, from, length, offset)`
pub fn pwrite<const VERSION: u8>(ruby: &Ruby, this: Obj<Scheduler>, arguments: &[Value]) -> Answer {
    let (io, request, file_offset) = given_at::<VERSION>(ruby, arguments)?;
    run_at(ruby, this, io, Direction::Write, &request, file_offset)
}

#[inline(always)]
fn given<const VERSION: u8>(ruby: &Ruby, arguments: &[Value]) -> Result<(Value, Request), Error> {
    let [io, buffer, third, fourth] = *arguments else {
        return Err(wrong_number(ruby, arguments.len(), "4"));
    };
    Ok((io, request::<VERSION>(buffer, third, fourth)?))
}

fn given_at<const VERSION: u8>(
    ruby: &Ruby,
    arguments: &[Value],
) -> Result<(Value, Request, i64), Error> {
    let [io, buffer, file_offset, fourth, fifth] = *arguments else {
        return Err(wrong_number(ruby, arguments.len(), "5"));
    };
    let file_offset = to_i64(file_offset)?;
    Ok((io, request::<VERSION>(buffer, fourth, fifth)?, file_offset))
}

/// The last two arguments: a length, which is a minimum, and an offset in the buffer. Since version 4 of the interface: an offset, and
/// a length, which is a maximum.
#[inline(always)]
fn request<const VERSION: u8>(buffer: Value, one: Value, other: Value) -> Result<Request, Error> {
    let (one, other) = (byte_count(one)?, byte_count(other)?);
    match VERSION {
        ..4 => Request::at_least(buffer, one, other),
        4.. => Request::at_most(buffer, other, one),
    }
}

fn run(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    io: Value,
    direction: Direction,
    request: &Request,
    file_offset: Option<u64>,
) -> Answer {
    let given = Transfer {
        io,
        direction,
        request,
        file_offset,
    };
    transfer(ruby, this, &given)
}

/// At a position in the file; EINVAL for what is before its beginning, as pread(2) says.
fn run_at(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    io: Value,
    direction: Direction,
    request: &Request,
    file_offset: i64,
) -> Answer {
    match u64::try_from(file_offset) {
        Ok(offset) => run(ruby, this, io, direction, request, Some(offset)),
        Err(_) => refuse(io, direction, request).map(hook_result),
    }
}

/// EINVAL, unless Ruby would raise before it makes the system call.
#[cold]
fn refuse(
    io: Value,
    direction: Direction,
    request: &Request,
) -> Result<Result<usize, Errno>, Error> {
    request.room()?;
    IoFacts::new(io)?;
    let (answer, _) = match direction {
        Direction::Read => request.with_writable(0, |_| Err(Errno::INVAL))?,
        Direction::Write => request.with_readable(0, |_| Err(Errno::INVAL))?,
    };
    Ok(answer)
}
