//! Which types are `Send`, which are `Sync`, and which are not.

use reactor::{
    Driver, Events, Handle, Interest, OperationId, Reactor, Sleep, Source, Token, Wait, Wake,
};

fn may_be_sent<T: Send>() {}
fn may_be_shared<T: Send + Sync>() {}

/// Fails to compile if the type is `Sync`: both implementations then apply, and `_` is ambiguous.
macro_rules! may_not_be_shared {
    ($($kind:ty),* $(,)?) => {
        $(const _: () = {
            trait Ambiguous<Which> {
                fn item() {}
            }
            impl<T: ?Sized> Ambiguous<()> for T {}
            struct Shared;
            impl<T: ?Sized + Sync> Ambiguous<Shared> for T {}
            let _ = <$kind as Ambiguous<_>>::item;
        };)*
    };
}

// Used by one thread at a time, which may be any thread.
may_not_be_shared!(Reactor, dyn Driver);
// A source is `Send` and `Sync` if its value is.
may_not_be_shared!(Source<std::cell::Cell<u8>>, Source<std::rc::Rc<u8>>);

#[test]
fn send_and_sync_types() {
    may_be_sent::<Reactor>();
    may_be_sent::<Box<dyn Driver>>();
    // Types that other threads hold.
    may_be_shared::<Handle>();
    may_be_shared::<Sleep>();
    may_be_shared::<Box<dyn Wake>>();
    may_be_shared::<OperationId>();
    may_be_shared::<Source<&std::net::TcpStream>>();
    #[cfg(feature = "pool")]
    may_be_sent::<(reactor::pool::Pool, reactor::pool::Job<String>)>();
}

#[test]
fn a_reactor_works_on_the_thread_it_is_given_to() {
    let mut reactor = Reactor::open(None).unwrap();
    let handle = reactor.handle();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let source = Source::new(listener);
    let wait = source.wait(&mut reactor, Interest::READABLE, Token::new(1, 0));
    assert!(matches!(wait, Ok(Wait::Pending(_))));
    let thread = std::thread::spawn(move || {
        let mut events = Events::new();
        while events.len() < 2 {
            reactor.turn(&mut events, None).unwrap();
        }
        drop(source.detach(&mut reactor));
        events.iter().map(|event| event.token.index()).sum::<u32>()
    });
    handle.notify(Token::new(41, 0)).unwrap();
    let _client = std::net::TcpStream::connect(address).unwrap();
    assert_eq!(thread.join().unwrap(), 42);
}
