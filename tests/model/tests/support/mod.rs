//! A model, and the loop of a thread that owns a reactor.

use std::{
    env, io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use loom::sync::{Condvar, Mutex};
use reactor::{
    Descriptor, Driver, Events, Handle, Interest, Reactor, Ready, Registration, Sleep, Token, Wake,
};

/// How many preemptions an interleaving has at most, unless `LOOM_MAX_PREEMPTIONS` gives another number.
const PREEMPTIONS: usize = 2;

/// Runs `body` with each interleaving of its threads within the bound, and prints how many there were. loom panics if all
/// threads that are left are blocked.
pub fn model(name: &str, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    if env::var_os("LOOM_MAX_PREEMPTIONS").is_none() {
        builder.preemption_bound = Some(PREEMPTIONS);
    }
    let (count, start) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let counted = Arc::clone(&count);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        body();
    });
    let (count, seconds) = (count.load(Ordering::Relaxed), start.elapsed().as_secs_f64());
    println!("model {name}: {count} interleavings, {seconds:.1} s");
}

/// A kernel that reports no descriptor. A poll or a sleep without a limit lasts until it is woken, or for ever: loom reports that.
struct Kernel {
    bell: Arc<Bell>,
}

#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
    /// How many wakes fail before they work.
    failures: AtomicUsize,
}

impl Driver for Kernel {
    fn register(
        &mut self,
        _: Descriptor,
        _: Token,
        _: Interest,
        _: bool,
    ) -> io::Result<Registration> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn deregister(&mut self, _: Descriptor) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        events.clear();
        self.bell.block(timeout)?;
        *self.bell.rung.lock().unwrap() = false;
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.bell) as Arc<dyn Wake>
    }

    fn descriptor(&self) -> Option<Descriptor> {
        None
    }
}

impl Wake for Bell {
    fn wake(&self) -> io::Result<()> {
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.fetch_sub(1, Ordering::Relaxed);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
        Ok(())
    }

    fn block(&self, timeout: Option<Duration>) -> io::Result<()> {
        let mut rung = self.rung.lock().unwrap();
        while timeout.is_none() && !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        Ok(())
    }
}

/// A reactor, and the tokens that it has reported.
pub struct Loop {
    reactor: Reactor,
    events: Events,
}

impl Loop {
    pub fn new() -> Self {
        Self::with_failing_wakes(0)
    }

    /// The next calls that wake the owner fail.
    pub fn with_failing_wakes(failures: usize) -> Self {
        let bell = Arc::new(Bell {
            failures: AtomicUsize::new(failures),
            ..Bell::default()
        });
        Self {
            reactor: Reactor::with_driver(Box::new(Kernel { bell })),
            events: Events::new(),
        }
    }

    /// One turn without a limit.
    pub fn turn(&mut self) {
        self.reactor.turn(&mut self.events, None).unwrap();
    }

    /// A sleep without a limit.
    pub fn sleep(&mut self) -> Sleep {
        self.reactor.sleep(None)
    }

    pub fn handle(&self) -> Handle {
        self.reactor.handle()
    }

    /// Turns, without a limit, until there are `count` events.
    pub fn turn_until(&mut self, count: usize) {
        while self.events.len() < count {
            self.turn();
        }
    }

    /// The indexes of all tokens that were reported, after one more look.
    pub fn events(&mut self) -> Vec<u32> {
        self.reactor.collect(&mut self.events).unwrap();
        assert!(
            self.events
                .iter()
                .all(|event| event.ready == Ready::NOTIFIED)
        );
        self.events
            .iter()
            .map(|event| event.token.index())
            .collect()
    }
}
