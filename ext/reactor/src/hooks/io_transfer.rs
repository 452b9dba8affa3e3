//! `io_read`, `io_write`, `io_pread`, `io_pwrite`, once for each order of arguments the interface has had.

use magnus::{Error, Ruby, Value, typed_data::Obj};
use rustix::io::Errno;

use crate::{
    control::scheduler::Scheduler,
    ruby::{
        convert::{byte_count, hook_result, to_i64},
        io_facts::IoFacts,
        method::wrong_number,
    },
    transfer::{
        request::{Direction, Request},
        stream::{Transfer, transfer},
    },
};

type Answer = Result<Value, Error>;

/// The arguments of `io_read` and `io_write`: IO, buffer, and two numbers, in the order of the interface version.
type Given = [Value; 4];

/// `io_read(io, buffer, length, offset)`, interface versions 2 and 3.
pub fn read_v3(ruby: &Ruby, this: Obj<Scheduler>, [io, buffer, length, offset]: Given) -> Answer {
    let request = Request::at_least(buffer, byte_count(length)?, byte_count(offset)?)?;
    run(ruby, this, io, Direction::Read, &request, None)
}

/// `io_write(io, buffer, length, offset)`, likewise.
pub fn write_v3(ruby: &Ruby, this: Obj<Scheduler>, [io, buffer, length, offset]: Given) -> Answer {
    let request = Request::at_least(buffer, byte_count(length)?, byte_count(offset)?)?;
    run(ruby, this, io, Direction::Write, &request, None)
}

/// `io_read(io, buffer, offset, length)`, interface version 4.
pub fn read_v4(ruby: &Ruby, this: Obj<Scheduler>, [io, buffer, offset, length]: Given) -> Answer {
    let request = Request::at_most(buffer, byte_count(length)?, byte_count(offset)?)?;
    run(ruby, this, io, Direction::Read, &request, None)
}

/// `io_write(io, buffer, offset, length)`, likewise.
pub fn write_v4(ruby: &Ruby, this: Obj<Scheduler>, [io, buffer, offset, length]: Given) -> Answer {
    let request = Request::at_most(buffer, byte_count(length)?, byte_count(offset)?)?;
    run(ruby, this, io, Direction::Write, &request, None)
}

/// `io_pread(io, buffer, from, length, offset)`, interface versions 2 and 3.
pub fn pread_v3(ruby: &Ruby, this: Obj<Scheduler>, arguments: &[Value]) -> Answer {
    let (io, buffer, [file_offset, length, offset]) = at(ruby, arguments)?;
    let request = Request::at_least(buffer, length, offset)?;
    run_at(ruby, this, io, Direction::Read, &request, file_offset)
}

/// `io_pwrite(io, buffer, from, length, offset)`, interface version 3.
pub fn pwrite_v3(ruby: &Ruby, this: Obj<Scheduler>, arguments: &[Value]) -> Answer {
    let (io, buffer, [file_offset, length, offset]) = at(ruby, arguments)?;
    let request = Request::at_least(buffer, length, offset)?;
    run_at(ruby, this, io, Direction::Write, &request, file_offset)
}

/// `io_pread(io, buffer, from, offset, length)`, interface version 4.
pub fn pread_v4(ruby: &Ruby, this: Obj<Scheduler>, arguments: &[Value]) -> Answer {
    let (io, buffer, [file_offset, offset, length]) = at(ruby, arguments)?;
    let request = Request::at_most(buffer, length, offset)?;
    run_at(ruby, this, io, Direction::Read, &request, file_offset)
}

/// `io_pwrite(io, buffer, from, offset, length)`, likewise.
pub fn pwrite_v4(ruby: &Ruby, this: Obj<Scheduler>, arguments: &[Value]) -> Answer {
    let (io, buffer, [file_offset, offset, length]) = at(ruby, arguments)?;
    let request = Request::at_most(buffer, length, offset)?;
    run_at(ruby, this, io, Direction::Write, &request, file_offset)
}

/// The arguments of `io_pread` and `io_pwrite`: IO, buffer, position in the file, and two numbers, in the order of the
/// interface version.
fn at(ruby: &Ruby, arguments: &[Value]) -> Result<(Value, Value, [i64; 3]), Error> {
    let [io, buffer, file_offset, third, fourth] = arguments else {
        return Err(wrong_number(ruby, arguments.len(), "5"));
    };
    let numbers = [
        to_i64(*file_offset)?,
        byte_count(*third)?,
        byte_count(*fourth)?,
    ];
    Ok((*io, *buffer, numbers))
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
