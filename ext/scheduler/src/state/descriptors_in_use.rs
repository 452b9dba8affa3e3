//! Descriptors in use by a worker or the driver, and the fibers and threads waiting to close them.

use std::collections::BTreeMap;

use reactor::Token;

use crate::state::{
    State,
    fiber::Slot,
    object_ref::ObjectRef,
    wait::{Purpose, WakeCause},
};

/// The number of an IO object (0: none), and the fiber for which its descriptor is used.
pub type Use = (u64, Slot);

/// Who waits to close an IO object until its descriptor is no longer in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closer {
    /// A fiber of this scheduler, with the token of its wait.
    Fiber(Token),
    /// Another thread, woken by pushing to this queue.
    Thread(ObjectRef),
}

#[derive(Debug, Default)]
pub struct DescriptorsInUse {
    /// The number of uses. Ordered, so that the uses of one IO object are found quickly among many others.
    held: BTreeMap<Use, u32>,
    /// Each closer, with the number of its IO object.
    closers: Vec<(u64, Closer)>,
}

impl DescriptorsInUse {
    /// Marks the descriptor as in use: it must not be closed until [`DescriptorsInUse::end`].
    pub fn begin(&mut self, usage: Use) {
        if usage.0 != 0 {
            *self.held.entry(usage).or_default() += 1;
        }
    }

    /// Ends one use.
    pub fn end(&mut self, usage: Use) {
        if let Some(count) = self.held.get_mut(&usage) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&usage);
            }
        }
    }

    pub fn is_in_use(&self, io_number: u64) -> bool {
        self.users(io_number).next().is_some()
    }

    /// The fibers for which the descriptor is in use.
    pub fn users(&self, io_number: u64) -> impl Iterator<Item = Slot> + '_ {
        let uses = (io_number, Slot::MIN)..=(io_number, Slot::MAX);
        self.held.range(uses).map(|((_, slot), _)| *slot)
    }

    /// Adds a fiber or thread that waits until the IO object is no longer in use.
    pub fn add_closer(&mut self, io_number: u64, closer: Closer) {
        self.closers.push((io_number, closer));
    }

    /// Removes and returns a closer whose IO object is no longer in use, or any closer if `all`.
    pub fn take_closer(&mut self, all: bool) -> Option<Closer> {
        let mut closers = self.closers.iter();
        let place = closers.position(|(io_number, _)| all || !self.is_in_use(*io_number))?;
        Some(self.closers.remove(place).1)
    }

    /// Visits every queue, for the garbage collector.
    pub fn for_each_object(&self, mut visit: impl FnMut(ObjectRef)) {
        for (_, closer) in &self.closers {
            if let Closer::Thread(queue) = closer {
                visit(*queue);
            }
        }
    }
}

impl State {
    /// Wakes the fibers that may now close a descriptor, because it is no longer in use or the scheduler was closed.
    /// Threads that may do so are woken by the caller: returns the queue of one of them, to push to; call this until it
    /// returns `None`.
    pub fn release_closers(&mut self) -> Option<ObjectRef> {
        loop {
            match self
                .descriptors_in_use
                .take_closer(self.event_loop.is_closed)?
            {
                Closer::Fiber(token) => _ = self.wake(token, WakeCause::Unblocked),
                Closer::Thread(queue) => return Some(queue),
            }
        }
    }

    /// Registers another thread that waits until the IO object is no longer in use. If it is not in use, returns false and
    /// does nothing.
    pub fn push_when_unused(&mut self, io_number: u64, queue: ObjectRef) -> bool {
        let is_in_use = self.descriptors_in_use.is_in_use(io_number);
        if is_in_use {
            self.descriptors_in_use
                .add_closer(io_number, Closer::Thread(queue));
        }
        is_in_use
    }

    /// Begins a wait until the IO object is no longer in use. If it is not in use, returns false and does nothing.
    pub fn begin_wait_until_unused(&mut self, slot: Slot, io_number: u64) -> bool {
        let is_in_use = self.descriptors_in_use.is_in_use(io_number);
        if is_in_use {
            let token = self.fibers.begin_wait(slot, Purpose::Work { io_number: 0 });
            self.descriptors_in_use
                .add_closer(io_number, Closer::Fiber(token));
        }
        is_in_use
    }
}

#[cfg(test)]
mod tests {
    use reactor::Token;

    use super::{Closer, DescriptorsInUse};
    use crate::state::object_ref::ObjectRef;

    #[test]
    fn the_closers_of_a_descriptor_are_due_after_its_last_use() {
        let fiber = Closer::Fiber(Token::new(7, 1));
        let queues = [ObjectRef::new(40), ObjectRef::new(48)];
        let [thread, elsewhere] = queues.map(Closer::Thread);
        let mut uses = DescriptorsInUse::default();
        for usage in [(5, 1), (5, 2), (6, 3)] {
            uses.begin(usage);
        }
        for (io_number, closer) in [(6, elsewhere), (5, fiber), (5, thread)] {
            uses.add_closer(io_number, closer);
        }
        assert_eq!(vec![1, 2], uses.users(5).collect::<Vec<_>>());
        uses.end((5, 1));
        assert_eq!(None, uses.take_closer(false));
        uses.end((5, 2));
        assert!(!uses.is_in_use(5) && uses.is_in_use(6));
        let mut kept = Vec::new();
        uses.for_each_object(|object| kept.push(object));
        assert_eq!(vec![queues[1], queues[0]], kept);
        for closer in [Some(fiber), Some(thread), None] {
            assert_eq!(closer, uses.take_closer(false));
        }
        assert_eq!(Some(elsewhere), uses.take_closer(true), "it is closed");
    }

    #[test]
    fn a_use_that_begins_twice_ends_twice() {
        let mut uses = DescriptorsInUse::default();
        uses.begin((5, 1));
        uses.begin((5, 1));
        uses.end((5, 1));
        assert!(uses.is_in_use(5));
        uses.end((5, 1));
        assert!(!uses.is_in_use(5));
    }

    #[test]
    fn work_without_a_descriptor_uses_nothing() {
        let mut uses = DescriptorsInUse::default();
        uses.begin((0, 1));
        assert!(!uses.is_in_use(0));
    }
}
