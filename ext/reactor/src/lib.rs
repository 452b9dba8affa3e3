//! The Ruby extension: `Reactor::NativeScheduler`, a complete native Fiber::Scheduler on the `reactor` crate.
//!
//! | layer        | contents |
//! |--------------|------------|
//! | `hooks`      | the methods of `Reactor::NativeScheduler`: parse arguments, enter, call the layers below |
//! | `standalone` | what Ruby calls without a scheduler: `Reactor::Poller`, `Reactor::Semaphore`, child processes, the patches' lock, HTTP requests |
//! | `transfer`   | reading and writing |
//! | `wait`       | what a fiber parks for |
//! | `control`    | which fiber is running |
//! | `ruby`       | the VM, behind safe signatures: the only unsafe module |
//!
//! Each layer uses those below it. Below them all are the crates `reactor-scheduler` (the state, and system calls) and
//! `reactor-loop`. `ext/scheduler/tests/layers.rs` checks the layers.
//!
//! `init` below names every method of the extension that Ruby sees.
#![deny(unsafe_code)]

mod control;
mod hooks;
mod ruby;
mod standalone;
mod transfer;
mod wait;

use magnus::{
    Error, RClass, RHash, RModule, Ruby, Symbol, TypedData, function, method, prelude::*,
};
use reactor::Backend;

use control::{
    collectable_timeout::TimeoutBlock, scheduler::Scheduler, watcher_marks::WatcherMarks,
};
use hooks::{
    block, blocking_operation, closing, fibers, for_patches, io_transfer, io_wait, observe,
    timeout, watching,
};
use ruby::{convert, error, fiber, hidden_ivar, io_info, object, ractor, thread, with_block};
use standalone::{
    child_process, http_request, patch_lock,
    poller::{self, Poller},
    semaphore::{self, Semaphore},
};
use wait::{
    child,
    lookup::{self, Lookup},
};

#[magnus::init(name = "reactor")]
fn init(ruby: &Ruby) -> Result<(), Error> {
    ruby::check_version(ruby)?;
    ruby::panics::point("init");
    ruby::ractor_safe();
    thread::count_forks();
    make_statics();
    let reactor = ruby.define_module("Reactor")?;
    let internal = reactor.define_module("Internal")?;
    define_functions(internal)?;

    #[cfg(feature = "forced-panics")]
    internal.define_module_function("force_panic", function!(ruby::panics::force, 1))?;
    #[cfg(feature = "planted-errors")]
    reactor
        .define_module("PlantedErrors")?
        .define_module_function("make", function!(ruby::planted_errors::make, 1))?;

    let class = reactor.define_class("NativeScheduler", ruby.class_object())?;
    class.define_alloc_func::<Scheduler>();
    define_methods(class)?;
    define_hooks(class)?;
    define_transfers(class, buffer_contract(ruby))?;
    class.define_singleton_method("define_transfers", function!(define_transfers, 2))?;

    for name in ["TimeoutBlock", "WatcherMarks"] {
        reactor.define_class(name, ruby.class_object())?;
    }
    define_lookup(reactor.define_class("Lookup", ruby.class_object())?)?;
    define_poller(reactor.define_class("Poller", ruby.class_object())?)?;
    define_semaphore(reactor.define_class("Semaphore", ruby.class_object())?)?;
    find_classes(ruby);
    Ok(())
}

/// Makes the statics that Ruby makes, before another Ractor can ask for them. The first use of such a static makes it
/// under a lock, and may collect garbage. A collection waits until every other Ractor has stopped in Ruby, where one that
/// waits for the lock never stops.
fn make_statics() {
    hidden_ivar::name();
    ractor::key();
}

/// Like [`make_statics`], for the class that each of these types keeps. Undefines the default allocators.
fn find_classes(ruby: &Ruby) {
    Scheduler::class(ruby);
    TimeoutBlock::class(ruby);
    WatcherMarks::class(ruby);
    Lookup::class(ruby);
    Poller::class(ruby);
    Semaphore::class(ruby);
}

/// Functions of the module `Reactor::Internal`.
fn define_functions(internal: RModule) -> Result<(), Error> {
    internal.define_module_function("backends", function!(backends, 0))?;
    internal.define_module_function("pidfd", function!(child_process::pidfd, 1))?;
    internal.define_module_function("await_child", function!(child_process::await_child, 2))?;
    internal.define_module_function("parse_request", function!(http_request::parse_request, 2))?;
    internal.define_module_function("seconds", function!(convert::seconds, 1))?;
    internal.define_module_function("opening_waits?", function!(for_patches::opening_waits, 1))?;
    internal.define_module_function("io_number", function!(io_info::io_number, 1))?;
    internal.define_module_function(
        "lock_native_thread",
        function!(thread::lock_native_thread, 0),
    )?;
    internal.define_module_function("without_handlers", function!(thread::without_handlers, 1))?;
    internal.define_module_function("woken?", function!(thread::is_woken, 1))?;
    internal.define_module_function("process_status", function!(thread::set_last_status, 2))?;
    internal.define_module_function("visible?", function!(object::is_visible, 1))?;
    internal.define_module_function("schedulers", function!(ractor::schedulers, 0))?;
    internal.define_module_function("schedulers=", function!(ractor::set_schedulers, 1))?;
    internal.define_module_function("announce_close", function!(closing::announce_close, 1))?;
    internal.define_module_function("close_blocks?", function!(closing::close_blocks, 0))?;
    internal.define_module_function("lock_patches", function!(patch_lock::lock_patches, 0))?;
    internal.define_module_function("unlock_patches", function!(patch_lock::unlock_patches, 0))?;
    Ok(())
}

/// `Reactor::NativeScheduler`: methods that the library calls.
fn define_methods(class: RClass) -> Result<(), Error> {
    class.define_method("initialize", method!(Scheduler::initialize, -1))?;
    class.define_method("backend", method!(Scheduler::backend_name, 0))?;
    class.define_method("stats", method!(Scheduler::statistics, 0))?;
    class.define_method("closed?", method!(Scheduler::is_closed, 0))?;
    class.define_method("forked_child?", method!(Scheduler::is_forked_child, 0))?;
    class.define_method("live", method!(Scheduler::live, 0))?;
    class.define_method("fiber_rows", method!(observe::fiber_rows, -1))?;
    class.define_method("histogram_rows", method!(observe::histogram_rows, 0))?;
    class.define_method("wait_hooks", method!(observe::wait_hooks, 0))?;
    class.define_method("progress_count", method!(observe::progress_count, 0))?;
    class.define_method("running_fiber", method!(observe::running_fiber, 0))?;
    class.define_method("watch_holds", method!(observe::watch_holds, 1))?;
    class.define_method("take_hold", method!(observe::take_hold, 0))?;
    class.define_method("block_of", method!(observe::block_of, 1))?;
    class.define_method("trace_start", method!(observe::start_trace, 1))?;
    class.define_method("trace_stop", method!(observe::stop_trace, 0))?;
    class.define_method("virtual_time", method!(observe::freeze_clock, 1))?;
    class.define_method("virtual_elapsed", method!(observe::virtual_elapsed, 0))?;
    class.define_method("virtual_hold", method!(observe::hold_clock, 1))?;
    class.define_method("shuffle", method!(observe::shuffle, 1))?;
    class.define_method("shuffled", method!(observe::shuffled, 0))?;
    class.define_method("shutdown", method!(fibers::shutdown, 0))?;
    class.define_method("drain", method!(fibers::drain, 0))?;
    class.define_method("cancel", method!(fibers::cancel, 1))?;
    class.define_method("forbid_own_fibers", method!(fibers::forbid_own_fibers, 0))?;
    class.define_method("cancel_fiber", method!(fibers::cancel_fiber, 2))?;
    class.define_method("cancelled?", method!(fibers::is_cancelled, 1))?;
    class.define_method("prepare_close", method!(closing::prepare_close, 1))?;
    class.define_method(
        "prepare_half_close",
        method!(closing::prepare_half_close, 2),
    )?;
    class.define_method("prepare_reopen", method!(closing::prepare_reopen, 1))?;
    class.define_method("replaced", method!(closing::replaced, 2))?;
    class.define_method(
        "note_read_shutdown",
        method!(closing::note_read_shutdown, 1),
    )?;
    class.define_method("push_when_unused", method!(closing::push_when_unused, 2))?;
    class.define_method("prefetch", method!(for_patches::prefetch, 4))?;
    class.define_method("sync_by_driver", method!(for_patches::sync_by_driver, 2))?;
    class.define_method(
        "yield_if_slice_spent",
        method!(for_patches::yield_if_slice_spent, 0),
    )?;
    class.define_method("wait_any", method!(io_wait::wait_any, -1))?;
    class.define_method("lookup", method!(lookup::lookup, 6))?;
    class.define_method("await_exit", method!(child::await_exit, 1))?;
    class.define_method("begin_child", method!(child::begin_child, 1))?;
    class.define_method("end_child", method!(child::end_child, 1))?;
    class.define_method("forget_child", method!(child::forget_child, 1))?;
    class.define_method("begin_watcher", method!(watching::begin_watcher, 6))?;
    class.define_method("linger", method!(watching::linger, 2))?;
    class.define_method("hung_up?", method!(watching::hung_up, 1))?;
    class.define_method("cancel_watcher", method!(watching::cancel_watcher, 1))?;
    class.define_method("watchers", method!(watching::watchers, 0))?;
    class.define_method("watched", method!(watching::watched, 1))?;
    class.define_method("interruptible", with_block::method(timeout::interruptible))?;
    class.define_method("interrupt", method!(timeout::interrupt, 1))?;
    class.define_method("limit", method!(timeout::limit, 2))?;
    class.define_method("withdraw", method!(timeout::withdraw, 1))?;
    class.define_singleton_method("define_fiber_body", function!(fiber::define_fiber_body, 1))?;
    let fiber_body = class.define_module("FiberBody")?.singleton_class()?;
    fiber_body.define_private_method("ended", method!(fibers::ended, 2))
}

/// `Reactor::NativeScheduler`: methods that the VM calls, except transfers.
fn define_hooks(class: RClass) -> Result<(), Error> {
    class.define_method("fiber", method!(fibers::fiber, -1))?;
    class.define_method("io_wait", method!(io_wait::io_wait, -1))?;
    class.define_method("kernel_sleep", method!(block::kernel_sleep, -1))?;
    class.define_method("block", method!(block::block, -1))?;
    class.define_method("unblock", method!(block::unblock, 2))?;
    class.define_method("fiber_interrupt", method!(closing::fiber_interrupt, 2))?;
    class.define_method("io_close", method!(closing::io_close, 1))?;
    class.define_method("timeout_after", with_block::method(timeout::timeout_after))?;
    class.define_method("yield", method!(block::r#yield, 0))?;
    class.define_method(
        "blocking_operation_wait",
        method!(blocking_operation::blocking_operation_wait, 1),
    )?;
    Ok(())
}

/// `Reactor::Lookup`
fn define_lookup(class: RClass) -> Result<(), Error> {
    class.define_method("ended?", method!(Lookup::is_ended, 0))?;
    class.define_method("answer", method!(Lookup::answer, 1))?;
    class.define_method("cancel", method!(Lookup::cancel, 0))
}

/// `Reactor::Semaphore`
fn define_semaphore(class: RClass) -> Result<(), Error> {
    class.define_alloc_func::<Semaphore>();
    class.define_method("initialize", method!(semaphore::initialize, 1))?;
    class.define_method("permits", method!(semaphore::permits, 0))?;
    class.define_method("available", method!(semaphore::available, 0))?;
    class.define_method("waiting", method!(semaphore::waiting, 0))?;
    class.define_method("holders", method!(semaphore::holders, 0))?;
    class.define_method("acquire", with_block::method(semaphore::acquire))?;
    class.define_method("try_acquire", with_block::method(semaphore::try_acquire))?;
    class.define_method("release", method!(semaphore::release, 0))
}

/// `Reactor::Poller`
fn define_poller(class: RClass) -> Result<(), Error> {
    class.define_alloc_func::<Poller>();
    class.define_method("initialize", method!(poller::initialize, -1))?;
    class.define_method("backend", method!(poller::backend, 0))?;
    class.define_method("stats", method!(poller::stats, 0))?;
    class.define_method("close", method!(poller::close, 0))?;
    class.define_method("closed?", method!(poller::is_closed, 0))?;
    class.define_method("wait", method!(poller::wait, 2))?;
    class.define_method("finish", method!(poller::finish, 2))?;
    class.define_method("poll", method!(poller::poll, 1))?;
    class.define_method("wake", method!(poller::wake, 0))?;
    class.define_method("close_descriptor", method!(poller::close_descriptor, 1))?;
    class.define_method("read", method!(poller::read, -1))?;
    class.define_method("write", method!(poller::write, -1))
}

/// The version of the interface. It determines the argument order of io_read and io_write: 4 from Ruby 4.1 on (given by
/// IO::Buffer::VERSION), 3 before.
fn buffer_contract(ruby: &Ruby) -> u8 {
    let version = ruby
        .class_io()
        .const_get::<_, RClass>("Buffer")
        .and_then(|buffer| buffer.const_get::<_, u32>("VERSION"));
    if version.is_ok_and(|version| version >= 3) {
        4
    } else {
        3
    }
}

/// Defines io_read, io_write, io_pread and io_pwrite for one version of the contract. The version is chosen only here,
/// once.
///
/// Also callable as `NativeScheduler.define_transfers(class, contract)`, so that tests can run both versions on any Ruby.
fn define_transfers(class: RClass, contract: u8) -> Result<(), Error> {
    if contract >= 4 {
        class.define_method("io_read", method!(io_transfer::next::<false, 4>, -1))?;
        class.define_method("io_write", method!(io_transfer::next::<true, 4>, -1))?;
        class.define_method("io_pread", method!(io_transfer::at::<false, 4>, -1))?;
    } else {
        class.define_method("io_read", method!(io_transfer::next::<false, 3>, -1))?;
        class.define_method("io_write", method!(io_transfer::next::<true, 3>, -1))?;
        class.define_method("io_pread", method!(io_transfer::at::<false, 3>, -1))?;
    }
    // Before Ruby 4.0 (interface version 3), IO#pwrite would call its hook inside a blocking region.
    match (ruby::INTERFACE, contract) {
        (..3, _) => Ok(()),
        (_, ..4) => class.define_method("io_pwrite", method!(io_transfer::at::<true, 3>, -1)),
        _ => class.define_method("io_pwrite", method!(io_transfer::at::<true, 4>, -1)),
    }
}

/// `Reactor::Internal.backends`: maps each backend's name to true, or to the reason why it is unavailable here. A
/// shortage of descriptors or memory does not count: opening the backend then raises the system's error.
fn backends(ruby: &Ruby) -> Result<RHash, Error> {
    let hash = ruby.hash_new();
    for backend in Backend::ALL {
        let name: Symbol = ruby.to_symbol(backend.name());
        match backend.availability() {
            Ok(()) => hash.aset(name, true)?,
            Err(reason) if reason.is_shortage() => {
                let code = reason.raw_os_error().unwrap_or_default();
                let error = error::shortage(code, reason.reason());
                hash.aset(name, error::into_exception(error)?)?;
            }
            Err(reason) => hash.aset(name, reason.to_string())?,
        }
    }
    Ok(hash)
}
