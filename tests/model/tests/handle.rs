//! The inbox and the sleep of a reactor: no lost wake-up, whatever other threads do meanwhile.

mod support;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use loom::thread;
use reactor::Token;

use support::{Loop, model};

#[test]
fn each_notification_is_reported_once_and_in_order() {
    model("each_notification_is_reported_once_and_in_order", || {
        let mut owner = Loop::new();
        let threads = [vec![1, 2], vec![3]].map(|tokens| {
            let handle = owner.handle();
            thread::spawn(move || {
                for token in tokens {
                    handle.notify(Token::new(token, 0)).unwrap();
                }
            })
        });
        owner.turn_until(3);
        for thread in threads {
            thread.join().unwrap();
        }
        let mut reported = owner.events();
        let place = |token| reported.iter().position(|other| *other == token);
        assert!(place(1) < place(2));
        reported.sort_unstable();
        assert_eq!(reported, [1, 2, 3]);
    });
}

#[test]
fn each_wake_ends_a_sleep() {
    for wakes in 1..=3 {
        model("each_wake_ends_a_sleep", move || {
            let mut owner = Loop::new();
            let stage = Arc::new(AtomicUsize::new(0));
            let (handle, reached) = (owner.handle(), Arc::clone(&stage));
            let thread = thread::spawn(move || {
                for next in 1..=wakes {
                    reached.store(next, Ordering::SeqCst);
                    handle.wake().unwrap();
                }
            });
            while stage.load(Ordering::SeqCst) < wakes {
                owner.turn();
            }
            thread.join().unwrap();
            assert_eq!(owner.events(), []);
        });
    }
}

#[test]
fn a_notification_ends_the_sleep_of_another_thread() {
    let name = "a_notification_ends_the_sleep_of_another_thread";
    model(name, || {
        let mut owner = Loop::new();
        let (sleep, handle) = (owner.sleep(), owner.handle());
        // It blocks, and is dropped there.
        let sleeping = thread::spawn(move || sleep.block().unwrap());
        let notifying = thread::spawn(move || handle.notify(Token::new(1, 0)).unwrap());
        sleeping.join().unwrap();
        owner.turn_until(1);
        notifying.join().unwrap();
        assert_eq!(owner.events(), [1]);
    });
}

#[test]
fn a_wake_and_notifications_do_not_take_each_others_place() {
    let name = "a_wake_and_notifications_do_not_take_each_others_place";
    model(name, || {
        let mut owner = Loop::new();
        let stage = Arc::new(AtomicUsize::new(0));
        let (handle, reached) = (owner.handle(), Arc::clone(&stage));
        let waking = thread::spawn(move || {
            reached.store(1, Ordering::SeqCst);
            handle.wake().unwrap();
        });
        let handle = owner.handle();
        let notifying = thread::spawn(move || handle.notify(Token::new(1, 0)).unwrap());
        owner.turn_until(1);
        while stage.load(Ordering::SeqCst) == 0 {
            owner.turn();
        }
        waking.join().unwrap();
        notifying.join().unwrap();
        assert_eq!(owner.events(), [1]);
    });
}

#[test]
fn a_notification_wakes_the_owner_after_one_that_could_not() {
    let name = "a_notification_wakes_the_owner_after_one_that_could_not";
    model(name, || {
        let mut owner = Loop::with_failing_wakes(2);
        let handle = owner.handle();
        let thread = thread::spawn(move || {
            // Both attempts of the first call that has to wake the owner fail: repeated until it works or is not needed.
            if handle.notify(Token::new(1, 0)).is_err() {
                handle.notify(Token::new(2, 0)).unwrap();
            } else {
                _ = handle.notify(Token::new(2, 0));
                _ = handle.wake().or_else(|_| handle.wake());
            }
        });
        owner.turn_until(2);
        thread.join().unwrap();
        assert_eq!(owner.events(), [1, 2]);
    });
}

#[test]
fn a_handle_outlives_its_reactor() {
    model("a_handle_outlives_its_reactor", || {
        let owner = Loop::new();
        let handle = owner.handle();
        let thread = thread::spawn(move || {
            handle.notify(Token::new(1, 0)).unwrap();
            handle.wake().unwrap();
        });
        drop(owner);
        thread.join().unwrap();
    });
}
