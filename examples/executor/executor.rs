//! A complete single-threaded async executor: tasks, timers, TCP. It uses only the reactor and the standard library.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    future::{Future, poll_fn},
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use reactor::{
    AsDescriptor, Deadline, Events, Handle, Interest, Reactor, Source, TimerId, Token, Wait, WaitId,
};

type Task = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// The executor. A clone is the same executor.
#[derive(Clone)]
pub struct Executor(Rc<Core>);

struct Core {
    reactor: RefCell<Reactor>,
    tasks: RefCell<HashMap<Token, Task>>,
    /// The task that is being polled. Its waits and timers have its token.
    current: Cell<Token>,
    spawned: Cell<u32>,
}

/// A task's waker, for other threads and for events that are neither of descriptors nor of timers.
struct Call(Token, Handle);

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.1.notify(self.0).expect("the kernel wakes the reactor");
    }
}

impl Executor {
    pub fn new() -> io::Result<Self> {
        Ok(Self(Rc::new(Core {
            reactor: RefCell::new(Reactor::open(None)?),
            tasks: RefCell::default(),
            current: Cell::new(Token::new(0, 0)),
            spawned: Cell::new(0),
        })))
    }

    /// Starts a task; it is polled for the first time in the next turn.
    pub fn spawn(&self, future: impl Future<Output = io::Result<()>> + 'static) {
        let token = Token::new(self.0.spawned.get(), 0);
        self.0.spawned.set(token.index() + 1);
        self.0.tasks.borrow_mut().insert(token, Box::pin(future));
        Arc::new(Call(token, self.0.reactor.borrow().handle())).wake();
    }

    /// Turns until no task is left or a task has failed.
    pub fn run(&self) -> io::Result<()> {
        let (mut events, handle) = (Events::new(), self.0.reactor.borrow().handle());
        while !self.0.tasks.borrow().is_empty() {
            events.clear();
            self.0.reactor.borrow_mut().turn(&mut events, None)?;
            for event in &events {
                // Removed while it runs, because it may spawn tasks.
                let task = self.0.tasks.borrow_mut().remove(&event.token);
                let Some(mut task) = task else { continue };
                self.0.current.set(event.token);
                let waker = Waker::from(Arc::new(Call(event.token, handle.clone())));
                match task.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(result) => result?,
                    Poll::Pending => _ = self.0.tasks.borrow_mut().insert(event.token, task),
                }
            }
        }
        Ok(())
    }

    /// Sleeps; dropping the future cancels the timer.
    pub async fn sleep(&self, duration: Duration) {
        let (reactor, deadline) = (&self.0.reactor, Deadline::after(duration));
        let timer = reactor.borrow_mut().timer(deadline, self.0.current.get());
        let _timer = Held(reactor, Number::Timer(timer));
        let due = || deadline.is_due(reactor.borrow().clock());
        poll_fn(|_| {
            if due() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    pub fn listen(&self) -> io::Result<(Io<TcpListener>, SocketAddr)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let source = Source::new(listener);
        Ok((
            Io {
                source,
                executor: self.clone(),
            },
            address,
        ))
    }

    pub fn attach(&self, stream: TcpStream) -> io::Result<Io<TcpStream>> {
        stream.set_nonblocking(true)?;
        Ok(Io {
            source: Source::new(stream),
            executor: self.clone(),
        })
    }
}

/// A wait or a timer of a future. It ends with the future.
struct Held<'reactor>(&'reactor RefCell<Reactor>, Number);

enum Number {
    Wait(WaitId),
    Timer(TimerId),
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut reactor = self.0.borrow_mut();
        match self.1 {
            Number::Wait(wait) => _ = reactor.end(wait),
            Number::Timer(timer) => _ = reactor.cancel(timer),
        }
    }
}

/// A socket; its calls wait.
pub struct Io<T> {
    source: Source<T>,
    executor: Executor,
}

impl<T: AsDescriptor> Io<T> {
    /// Tries the call, and waits while it would block.
    async fn call<R>(
        &mut self,
        interest: Interest,
        mut call: impl FnMut(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        let (core, mut held) = (&self.executor.0, None);
        poll_fn(|_| {
            drop(held.take()); // Each poll tries, for whatever reason it was made.
            let mut reactor = core.reactor.borrow_mut();
            match self.source.attempt(&mut reactor, interest, &mut call) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
            let wait = self.source.wait(&mut reactor, interest, core.current.get());
            let Wait::Pending(wait) = wait? else {
                return Poll::Ready(Err(ErrorKind::Unsupported.into())); // Never for a socket.
            };
            held = Some(Held(&core.reactor, Number::Wait(wait)));
            Poll::Pending
        })
        .await
    }
}

impl Io<TcpListener> {
    pub async fn accept(&mut self) -> io::Result<Io<TcpStream>> {
        let accept = |listener: &mut TcpListener| listener.accept();
        let (stream, _) = self.call(Interest::READABLE, accept).await?;
        self.executor.attach(stream)
    }
}

impl Io<TcpStream> {
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = |stream: &mut TcpStream| stream.read(buffer);
        self.call(Interest::READABLE, read).await
    }

    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let write = |stream: &mut TcpStream| stream.write(bytes);
            match self.call(Interest::WRITABLE, write).await? {
                0 => return Err(ErrorKind::WriteZero.into()),
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
    }
}
