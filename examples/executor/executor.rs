//! A complete single-threaded async executor: tasks, timers, TCP. It uses only the reactor and the standard library.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    future::{Future, poll_fn},
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use reactor::{
    AsDescriptor, Deadline, Events, Interest, Reactor, Source, TimerId, Token, Wait, WaitId,
};

type Task = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// The executor. A clone is the same executor.
#[derive(Clone)]
pub struct Executor(Rc<Core>);

struct Core {
    reactor: RefCell<Reactor>,
    tasks: RefCell<HashMap<Token, Task>>,
    /// The wakers of the futures whose waits or timers have these tokens.
    wakers: RefCell<HashMap<Token, Waker>>,
    /// Tasks, waits and timers are numbered in one sequence.
    numbers: Cell<u64>,
}

impl Core {
    fn next_token(&self) -> Token {
        let number = self.numbers.replace(self.numbers.get() + 1);
        let indexes = u64::from(Token::MAX_INDEX);
        Token::new((number % indexes) as u32, (number / indexes) as u32)
    }
}

impl Executor {
    pub fn new() -> io::Result<Self> {
        Ok(Self(Rc::new(Core {
            reactor: RefCell::new(Reactor::open(None)?),
            tasks: RefCell::default(),
            wakers: RefCell::default(),
            numbers: Cell::new(0),
        })))
    }

    /// Starts a task; it is polled for the first time in the next turn.
    pub fn spawn(&self, future: impl Future<Output = io::Result<()>> + 'static) {
        let token = self.0.next_token();
        self.0.tasks.borrow_mut().insert(token, Box::pin(future));
        self.0.reactor.borrow().handle().waker(token).wake();
    }

    /// Turns until no task is left or a task has failed.
    pub fn run(&self) -> io::Result<()> {
        let (mut events, handle) = (Events::new(), self.0.reactor.borrow().handle());
        while !self.0.tasks.borrow().is_empty() {
            events.clear();
            self.0.reactor.borrow_mut().turn(&mut events, None)?;
            for event in &events {
                if let Some(waker) = self.0.wakers.borrow_mut().remove(&event.token) {
                    waker.wake(); // a future polls the ones in it that were woken, and no others
                    continue;
                }
                // Removed while it runs, because it may spawn tasks.
                let task = self.0.tasks.borrow_mut().remove(&event.token);
                let Some(mut task) = task else { continue };
                let waker = handle.waker(event.token);
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
        let (core, deadline, token) = (&self.0, Deadline::after(duration), self.0.next_token());
        let timer = core.reactor.borrow_mut().timer(deadline, token);
        let _timer = Held(core, token, Number::Timer(timer));
        poll_fn(|context| {
            if deadline.is_due(core.reactor.borrow().clock()) {
                return Poll::Ready(());
            }
            core.wakers
                .borrow_mut()
                .insert(token, context.waker().clone());
            Poll::Pending
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
struct Held<'core>(&'core Core, Token, Number);

enum Number {
    Wait(WaitId),
    Timer(TimerId),
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.wakers.borrow_mut().remove(&self.1);
        let mut reactor = self.0.reactor.borrow_mut();
        match self.2 {
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
        poll_fn(|context| {
            drop(held.take()); // Each poll tries, for whatever reason it was made.
            let mut reactor = core.reactor.borrow_mut();
            match self.source.attempt(&mut reactor, interest, &mut call) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
            let token = core.next_token();
            let wait = self.source.wait(&mut reactor, interest, token);
            let Wait::Pending(wait) = wait? else {
                return Poll::Ready(Err(ErrorKind::Unsupported.into())); // Never for a socket.
            };
            core.wakers
                .borrow_mut()
                .insert(token, context.waker().clone());
            held = Some(Held(core, token, Number::Wait(wait)));
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
