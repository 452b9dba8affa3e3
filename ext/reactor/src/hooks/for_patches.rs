//! Methods called by the patches in `lib/reactor/patches/`: `prefetch`, `sync_by_driver`, `yield_if_slice_spent` (also for
//! offloaded operations), and `Reactor::Internal.opening_waits?` for files. (`flock` is written in Ruby:
//! `lib/reactor/patches/file.rb`.)

use magnus::{Error, RString, Ruby, Value, prelude::*, typed_data::Obj};
use reactor::Operation;
use reactor_scheduler::system::{errno::Errno, kind};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::{convert::bytes, io_info::IoInfo},
    transfer::file,
    wait::work,
};

/// `prefetch(io, file_offset, length, ahead)`: brings a range of a regular file into the page cache, starting at the
/// current position if `file_offset` is nil. Parks the fiber unless the range is cached. Asks the kernel for `ahead`
/// bytes from the start of the range. Yields first if the time slice is spent. Returns false if the IO is not a regular
/// file.
pub fn prefetch(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    io: Value,
    file_offset: Option<u64>,
    length: usize,
    ahead: u64,
) -> Result<bool, Error> {
    let scope = HookScope::enter(ruby, &this)?;
    scope.yield_if_slice_spent()?;
    this.slice.count_transfer(length);
    file::prefetch(&scope, &IoInfo::new(io)?, file_offset, length, ahead)
}

/// `sync_by_driver(io, data_only)`: fsync(2) or fdatasync(2) by the driver while the fiber is parked. Returns 0 or the
/// error number. Returns nil without syncing if the driver does not support the operation, or if the IO's read buffer
/// holds bytes.
pub fn sync_by_driver(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    io: Value,
    data_only: bool,
) -> Result<Option<i32>, Error> {
    if IoInfo::new(io)?.io.has_read_ahead() {
        return Ok(None); // a flush would discard them; Ruby's own fsync does not
    }
    io.funcall::<_, _, Value>("flush", ())?;
    let scope = HookScope::enter(ruby, &this)?;
    let operation = match data_only {
        true => Operation::SyncData,
        false => Operation::Sync,
    };
    let answer = work::carry_out(&scope, &IoInfo::new(io)?, operation)?;
    Ok(answer.map(|answer| answer.map_or_else(Errno::number, |_| 0)))
}

/// `yield_if_slice_spent`: lets other fibers run if none has waited for a time slice. For operations slow enough that the
/// clock can be read each time.
pub fn yield_if_slice_spent(ruby: &Ruby, this: Obj<Scheduler>) -> Result<(), Error> {
    HookScope::enter(ruby, &this)?.check_slice().map(drop)
}

/// `Reactor::Internal.opening_waits?(path)`: whether opening this path (a String) may wait forever.
pub fn opening_waits(path: Value) -> bool {
    RString::from_value(path).is_some_and(|path| kind::opening_waits(bytes(path)))
}
