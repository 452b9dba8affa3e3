//! `io_read`, `io_write`, `io_pread` and `io_pwrite`, for each VERSION of the interface. The version determines the
//! order of the arguments.

use magnus::{Error, Ruby, Value};

use crate::{
    control::scheduler::Scheduler,
    ruby::{
        convert::{byte_count, to_i64},
        receiver::{Receiver, wrong_number},
    },
    transfer::{
        request::{Direction, Transfer},
        stream::transfer,
    },
};

/// `io_read(io, buffer, length, offset)`, `io_write`
pub fn next<const WRITES: bool, const VERSION: u8>(
    ruby: &Ruby,
    Receiver(this): Receiver<Scheduler>,
    arguments: &[Value],
) -> Result<Value, Error> {
    let [io, buffer, third, fourth] = *arguments else {
        return Err(wrong_number(ruby, arguments.len(), "4"));
    };
    let numbers = [byte_count(third)?, byte_count(fourth)?];
    let given = Transfer::new(direction(WRITES), VERSION, [io, buffer], numbers)?;
    transfer(ruby, this, &given)
}

/// `io_pread(io, buffer, from, length, offset)`, `io_pwrite`
pub fn at<const WRITES: bool, const VERSION: u8>(
    ruby: &Ruby,
    Receiver(this): Receiver<Scheduler>,
    arguments: &[Value],
) -> Result<Value, Error> {
    let [io, buffer, from, fourth, fifth] = *arguments else {
        return Err(wrong_number(ruby, arguments.len(), "5"));
    };
    let file_offset = to_i64(from)? as u64; // the system call rejects negative values
    let numbers = [byte_count(fourth)?, byte_count(fifth)?];
    let mut given = Transfer::new(direction(WRITES), VERSION, [io, buffer], numbers)?;
    given.file_offset = Some(file_offset);
    transfer(ruby, this, &given)
}

const fn direction(writes: bool) -> Direction {
    match writes {
        true => Direction::Write,
        false => Direction::Read,
    }
}
