//! The Ruby extension: `Reactor::Selector`, a complete native Fiber::Scheduler over the `reactor` crate.
//!
//! `raw` is the only unsafe module. `convert` knows Ruby's numbers and errors, `fibers` and `timeouts` who waits for
//! what, `selector` how control moves, `hooks` and `io` the contract of Fiber::Scheduler, `children` how to hear of a
//! child process, `installation` who may change Ruby's classes, `inspect` and `trace` what an onlooker may see.
//! `Init_reactor` below is the whole Ruby surface on one screen.
#![deny(unsafe_code)]

mod attempt;
#[path = "wait/work.rs"]
mod blocking;
#[path = "classes/children.rs"]
mod children;
#[path = "ruby/convert.rs"]
mod convert;
mod fibers;
#[path = "transfer/file_read.rs"]
mod files;
#[path = "hooks/io_wait.rs"]
mod hooks;
#[path = "hooks/observe.rs"]
mod inspect;
#[path = "classes/patch_lock.rs"]
mod installation;
#[path = "transfer/stream.rs"]
mod io;
mod loans;
#[path = "classes/poller.rs"]
mod poller;
mod queue;
#[path = "ruby.rs"]
mod raw;
#[path = "wait/lookup.rs"]
mod resolve;
#[path = "transfer/batched_send.rs"]
mod ring;
#[path = "control/scheduler.rs"]
mod selector;
mod share;
mod timeouts;
mod trace;
#[path = "hooks/virtual_time.rs"]
mod virtual_time;

use magnus::{Error, RClass, RHash, Ruby, Symbol, function, method, prelude::*};
use reactor::Backend;

use poller::Poller;
use raw::methods;
use resolve::Lookup;
use selector::Selector;

#[magnus::init(name = "reactor")]
fn init(ruby: &Ruby) -> Result<(), Error> {
    raw::ractor_safe();
    raw::count_forks();
    // Known before any other Ractor can ask: a lock around a question to Ruby would stop one that Ruby waits for.
    raw::hidden_name();
    hooks::misreports_timeouts(ruby);
    let reactor = ruby.define_module("Reactor")?;
    reactor.define_module_function("native_backends", function!(native_backends, 0))?;
    reactor.define_module_function("pidfd", function!(children::pidfd, 1))?;
    reactor.define_module_function("await_child", function!(children::await_child, 2))?;
    reactor.define_module_function("stand_back", function!(reactor::lengthen_time_slice, 0))?;
    reactor.define_module_function("fifo?", function!(files::is_fifo, 1))?;
    reactor.define_module_function("io_number", function!(inspect::io_number, 1))?;
    reactor.define_module_function("stay", function!(raw::stay, 0))?;
    reactor.define_module_function("claim", function!(installation::claim, 0))?;
    reactor.define_module_function("release", function!(installation::release, 0))?;

    let class = reactor.define_class("Selector", ruby.class_object())?;
    class.define_alloc_func::<Selector>();
    class.define_method("initialize", method!(Selector::initialize, -1))?;
    class.define_method("backend", method!(Selector::backend_name, 0))?;
    class.define_method("stats", method!(Selector::statistics, 0))?;
    class.define_method("closed?", method!(Selector::is_closed, 0))?;
    class.define_method("inert?", method!(Selector::is_inert, 0))?;
    class.define_method("live", method!(Selector::live, 0))?;
    class.define_method("roster", method!(inspect::roster, 0))?;
    class.define_method("waited_for", method!(inspect::waited_for, 0))?;
    class.define_method("pulse", method!(inspect::pulse, 0))?;
    class.define_method("holder", method!(inspect::holder, 0))?;
    class.define_method("trace_start", method!(trace::start, 1))?;
    class.define_method("trace_stop", method!(trace::stop, 0))?;
    class.define_method("virtual_time", method!(virtual_time::start, 1))?;
    class.define_method("virtual_elapsed", method!(virtual_time::elapsed, 0))?;
    class.define_method("virtual_hold", method!(virtual_time::hold, 1))?;
    class.define_method("shutdown", method!(Selector::shutdown, 0))?;
    class.define_method("drain", method!(hooks::drain, 0))?;
    class.define_method("cancel", method!(hooks::cancel, 0))?;
    methods::define(class, c"io_closing", hooks::io_closing);
    class.define_method("fetch", method!(hooks::fetch, 4))?;
    class.define_method("sync", method!(hooks::sync, 2))?;
    class.define_method("submit", method!(hooks::submit, 0))?;
    class.define_method("wait_any", method!(hooks::wait_any, -1))?;
    class.define_method("lookup", method!(resolve::lookup, -1))?;

    class.define_singleton_method("run_by", function!(raw::run_by, 1))?;
    methods::define(class, c"ended", hooks::ended);
    class.funcall::<_, _, magnus::Value>("private", ("ended",))?;
    methods::define_variadic(class, c"fiber", hooks::fiber);
    methods::define(class, c"io_wait", hooks::io_wait);
    methods::define_variadic(class, c"kernel_sleep", hooks::kernel_sleep);
    methods::define_variadic(class, c"block", hooks::block);
    methods::define(class, c"unblock", hooks::unblock);
    class.define_method("fiber_interrupt", method!(hooks::fiber_interrupt, 2))?;
    class.define_method("io_close", method!(hooks::io_close, 1))?;
    methods::define_variadic(class, c"timeout_after", hooks::timeout_after);
    methods::define(class, c"yield", hooks::r#yield);
    methods::define(
        class,
        c"blocking_operation_wait",
        hooks::blocking_operation_wait,
    );
    define_transfers(class, buffer_contract(ruby))?;
    class.define_singleton_method("define_transfers", function!(define_transfers, 2))?;
    define_lookup(reactor.define_class("Lookup", ruby.class_object())?)?;
    define_poller(reactor.define_class("Poller", ruby.class_object())?)
}

/// `Reactor::Lookup`
fn define_lookup(class: RClass) -> Result<(), Error> {
    class.undef_default_alloc_func();
    class.define_method("ended?", method!(Lookup::is_ended, 0))?;
    class.define_method("answer", method!(Lookup::answer, 1))?;
    class.define_method("cancel", method!(Lookup::cancel, 0))
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

/// The version of the interface whose argument order io_read and io_write have on this Ruby: 4 from Ruby 4.1 on
/// (told by IO::Buffer::VERSION), 3 before.
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

/// Defines io_read, io_write, io_pread and io_pwrite for one version of the contract: the only switch, made once.
///
/// Also `Selector.define_transfers(class, contract)`, which lets the tests run both versions on any Ruby.
fn define_transfers(class: RClass, contract: u8) -> Result<(), Error> {
    if contract >= 4 {
        methods::define(class, c"io_read", io::read_v4);
        methods::define(class, c"io_write", io::write_v4);
        class.define_method("io_pread", method!(io::pread_v4, -1))?;
    } else {
        methods::define(class, c"io_read", io::read_v3);
        methods::define(class, c"io_write", io::write_v3);
        class.define_method("io_pread", method!(io::pread_v3, -1))?;
    }
    // Before Ruby 4.0 (interface version 3) IO#pwrite would call its hook in the middle of a blocking region.
    match (raw::INTERFACE, contract) {
        (..3, _) => Ok(()),
        (_, ..4) => class.define_method("io_pwrite", method!(io::pwrite_v3, -1)),
        _ => class.define_method("io_pwrite", method!(io::pwrite_v4, -1)),
    }
}

/// `Reactor.native_backends`: each backend's name with true, or with the reason why it cannot be had here.
fn native_backends(ruby: &Ruby) -> Result<RHash, Error> {
    let hash = ruby.hash_new();
    for backend in Backend::ALL {
        let name: Symbol = ruby.to_symbol(backend.name());
        match backend.availability() {
            Ok(()) => hash.aset(name, true)?,
            Err(reason) => hash.aset(name, reason.to_string())?,
        }
    }
    Ok(hash)
}
