//! The reactor in a tokio task.

use std::{
    io::{self, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use reactor::{Deadline, Events, Interest, Reactor, Source, Token};
use tokio::{
    io::{Interest as Direction, unix::AsyncFd},
    runtime::Builder,
    time,
};

/// One task of tokio turns the reactor, another one feeds it. Returns the events: a byte, a notification, a timer.
pub fn run() -> io::Result<Vec<String>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut reactor = Reactor::open(None)?;
        let (ours, mut theirs) = UnixStream::pair()?;
        let ours = Source::new(ours);
        _ = ours.wait(&mut reactor, Interest::READABLE, Token::new(1, 0))?;
        reactor.timer(Deadline::after(Duration::from_millis(40)), Token::new(3, 0));
        let handle = reactor.handle();
        let feeder = tokio::spawn(async move {
            time::sleep(Duration::from_millis(5)).await;
            theirs.write_all(b"x")?;
            time::sleep(Duration::from_millis(5)).await;
            handle.notify(Token::new(2, 0))?;
            io::Result::Ok(theirs) // Kept open: the end of the stream would be an event, too.
        });

        // SAFETY: the descriptor is a duplicate. AsyncFd is its only owner and closes it on drop.
        #[expect(unsafe_code, reason = "tokio's interface requires it")]
        let queue =
            unsafe { AsyncFd::register_with_interest(reactor.queue()?, Direction::READABLE) }?;
        let (mut found, mut events) = (Vec::new(), Events::new());
        while found.len() < 3 {
            turn(&mut reactor, &queue, &mut events).await?;
            let described =
                |event: &reactor::Event| format!("{} {:?}", event.token.index(), event.ready);
            found.extend(events.iter().map(described));
        }
        drop(feeder.await);
        Ok(found)
    })
}

/// As `Reactor::turn`, but it sleeps in tokio.
async fn turn<T: std::os::fd::AsRawFd>(
    reactor: &mut Reactor,
    queue: &AsyncFd<T>,
    events: &mut Events,
) -> io::Result<()> {
    events.clear();
    reactor.collect(events)?;
    if !events.is_empty() {
        return Ok(());
    }
    let sleep = reactor.sleep(None);
    let limit = sleep.timeout().unwrap_or(Duration::from_secs(3600));
    if let Ok(readable) = time::timeout(limit, queue.readable()).await {
        // Cleared before the collect: an event that comes later makes the queue readable again.
        readable?.clear_ready();
    }
    drop(sleep);
    reactor.collect(events)
}
