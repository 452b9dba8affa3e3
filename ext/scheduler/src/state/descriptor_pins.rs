//! Descriptors that a worker or the driver uses, and the fibers and threads that wait to close them.

use std::collections::BTreeMap;

use reactor::Token;

use crate::state::{
    State,
    fiber::Slot,
    object_ref::ObjectRef,
    wait::{Purpose, WakeCause},
};

/// The number of an IO object (0: none), and the fiber for which its descriptor is used.
pub type Pin = (u64, Slot);

#[derive(Debug, Default)]
pub struct DescriptorPins {
    /// How often each pin is held. In order, so that those of one IO object are found among any number of others.
    held: BTreeMap<Pin, u32>,
    /// The io number each waits for, and its wait.
    closers: Vec<(u64, Token)>,
    /// The same for closers on other threads: each waits for an element in its queue.
    queues: Vec<(u64, ObjectRef)>,
}

impl DescriptorPins {
    /// The descriptor must not be closed until the pin is released.
    pub fn pin(&mut self, pin: Pin) {
        if pin.0 != 0 {
            *self.held.entry(pin).or_default() += 1;
        }
    }

    /// Releases one pin. The waits of the fibers that may close the descriptor now.
    pub fn unpin(&mut self, pin: Pin) -> Vec<Token> {
        if let Some(count) = self.held.get_mut(&pin) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&pin);
            }
        }
        let io_number = pin.0;
        if self.closers.is_empty() || self.is_pinned(io_number) {
            return Vec::new();
        }
        let (woken, rest) = std::mem::take(&mut self.closers)
            .into_iter()
            .partition::<Vec<_>, _>(|(closing, _)| *closing == io_number);
        self.closers = rest;
        woken.into_iter().map(|(_, token)| token).collect()
    }

    pub fn is_pinned(&self, io_number: u64) -> bool {
        self.users(io_number).next().is_some()
    }

    /// The fibers for which it is pinned.
    pub fn users(&self, io_number: u64) -> impl Iterator<Item = Slot> + '_ {
        let pins = (io_number, Slot::MIN)..=(io_number, Slot::MAX);
        self.held.range(pins).map(|((_, slot), _)| *slot)
    }

    /// The wait with this token is one for the last pin of the IO object.
    pub fn wait_to_close(&mut self, io_number: u64, token: Token) {
        self.closers.push((io_number, token));
    }

    /// A thread waits for the last pin of the IO object: its queue is to get an element then.
    pub fn add_queue(&mut self, io_number: u64, queue: ObjectRef) {
        self.queues.push((io_number, queue));
    }

    /// The queue of an IO object that is not pinned any more, or any queue if `all`. It is forgotten here.
    pub fn take_queue(&mut self, all: bool) -> Option<ObjectRef> {
        let mut queues = self.queues.iter();
        let place = queues.position(|(io_number, _)| all || !self.is_pinned(*io_number))?;
        Some(self.queues.swap_remove(place).1)
    }

    /// Every queue, for the garbage collector.
    pub fn for_each_object(&self, mut visit: impl FnMut(ObjectRef)) {
        self.queues.iter().for_each(|(_, queue)| visit(*queue));
    }
}

impl State {
    /// Releases a pin, and wakes the fibers that wait to close the descriptor.
    pub fn unpin(&mut self, pin: Pin) {
        for token in self.pins.unpin(pin) {
            self.wake(token, WakeCause::Unblocked);
        }
    }

    /// Another thread waits for the last pin of an IO object. False, and nothing done, if it has none.
    pub fn push_when_unpinned(&mut self, io_number: u64, queue: ObjectRef) -> bool {
        let is_pinned = self.pins.is_pinned(io_number);
        if is_pinned {
            self.pins.add_queue(io_number, queue);
        }
        is_pinned
    }

    /// A queue that gets an element now: its IO object is not pinned any more, or the scheduler is closed.
    pub fn take_queue_of_closer(&mut self) -> Option<ObjectRef> {
        self.pins.take_queue(self.event_loop.is_closed)
    }

    /// Begins a wait for the last pin of an IO object. False, and nothing done, if it has none.
    pub fn begin_wait_for_unpin(&mut self, slot: Slot, io_number: u64) -> bool {
        let is_pinned = self.pins.is_pinned(io_number);
        if is_pinned {
            let token = self.fibers.begin_wait(slot, Purpose::Work { io_number: 0 });
            self.pins.wait_to_close(io_number, token);
        }
        is_pinned
    }
}

#[cfg(test)]
mod tests {
    use reactor::Token;

    use super::DescriptorPins;
    use crate::state::object_ref::ObjectRef;

    #[test]
    fn the_last_pin_wakes_the_closers_of_its_descriptor() {
        let mut pins = DescriptorPins::default();
        let (closer, elsewhere) = (Token::new(7, 1), Token::new(8, 1));
        pins.pin((5, 1));
        pins.pin((5, 2));
        pins.pin((6, 3));
        pins.wait_to_close(5, closer);
        pins.wait_to_close(6, elsewhere);
        assert_eq!(vec![1, 2], pins.users(5).collect::<Vec<_>>());
        assert!(pins.unpin((5, 1)).is_empty());
        assert!(pins.is_pinned(5));
        assert_eq!(vec![closer], pins.unpin((5, 2)));
        assert!(!pins.is_pinned(5) && pins.is_pinned(6));
        assert_eq!(vec![elsewhere], pins.unpin((6, 3)));
    }

    #[test]
    fn the_queue_of_another_thread_is_due_after_the_last_pin() {
        let mut pins = DescriptorPins::default();
        let (queue, elsewhere) = (ObjectRef::new(40), ObjectRef::new(48));
        pins.pin((5, 1));
        pins.pin((5, 2));
        pins.pin((6, 3));
        pins.add_queue(6, elsewhere);
        pins.add_queue(5, queue);
        pins.unpin((5, 1));
        assert_eq!(None, pins.take_queue(false));
        pins.unpin((5, 2));
        assert_eq!(Some(queue), pins.take_queue(false));
        assert_eq!(None, pins.take_queue(false));
        let mut kept = Vec::new();
        pins.for_each_object(|object| kept.push(object));
        assert_eq!(vec![elsewhere], kept);
        assert_eq!(
            Some(elsewhere),
            pins.take_queue(true),
            "the scheduler is closed"
        );
    }

    #[test]
    fn a_pin_that_is_held_twice_is_released_twice() {
        let mut pins = DescriptorPins::default();
        pins.pin((5, 1));
        pins.pin((5, 1));
        pins.unpin((5, 1));
        assert!(pins.is_pinned(5));
        pins.unpin((5, 1));
        assert!(!pins.is_pinned(5));
        assert!(pins.unpin((5, 1)).is_empty());
    }

    #[test]
    fn work_without_a_descriptor_pins_nothing() {
        let mut pins = DescriptorPins::default();
        pins.pin((0, 1));
        assert!(!pins.is_pinned(0));
        assert!(pins.unpin((0, 1)).is_empty());
    }
}
