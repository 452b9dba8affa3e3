//! Descriptors by number, in pages that come into being when a number in them is first used.

use std::io;

use crate::{driver::Descriptor, identity::Identity};

/// No waiter.
pub const NONE: u32 = u32::MAX;

const PAGE: usize = 256;

/// What is remembered of one descriptor. Directions are bits of `Interest`.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Counts up whenever what is behind the number may have changed.
    pub generation: u32,
    pub registered: u8,
    pub drained: u8,
    pub seen: u8,
    /// Reported while nobody wanted them.
    pub unwanted: u8,
    pub hung_up: bool,
    /// Different objects have turned out to be one description.
    pub shared: bool,
    /// Its waiters, in the order in which they came.
    pub first: u32,
    pub last: u32,
    identity: Identity,
}

impl Entry {
    const EMPTY: Self = Self {
        generation: 0,
        registered: 0,
        drained: 0,
        seen: 0,
        unwanted: 0,
        hung_up: false,
        shared: false,
        first: NONE,
        last: NONE,
        identity: Identity::UNKNOWN,
    };

    /// Whether what is remembered is about this object.
    pub fn trusts(&self, identity: Identity) -> bool {
        identity != Identity::UNKNOWN && self.identity == identity
    }

    /// Another object: nothing remembered holds, but for the fact that something is registered.
    pub fn start_over(&mut self, identity: Identity) {
        self.identity = identity;
        self.unwanted = 0;
        self.renew();
    }

    /// Another description behind the same number.
    pub fn renew(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.drained = 0;
        self.seen = 0;
        self.hung_up = false;
    }

    /// Nothing is registered any more.
    pub fn unregister(&mut self) {
        self.registered = 0;
        self.drained = 0;
        self.seen = 0;
        self.unwanted = 0;
    }
}

/// All entries. Memory follows the numbers in use, not the highest possible one.
#[derive(Debug, Default)]
pub struct Table {
    pages: Vec<Option<Box<[Entry; PAGE]>>>,
}

impl Table {
    /// A descriptor's index in tokens.
    ///
    /// # Errors
    ///
    /// EBADF for a number that no descriptor can have.
    #[cfg(unix)]
    pub fn index_of(descriptor: Descriptor) -> io::Result<u32> {
        u32::try_from(descriptor).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// Sockets are handles: multiples of four with 32 significant bits.
    #[cfg(windows)]
    pub fn index_of(descriptor: Descriptor) -> io::Result<u32> {
        u32::try_from(descriptor / 4).map_err(|_| io::ErrorKind::InvalidInput.into())
    }

    #[cfg(unix)]
    pub fn descriptor_of(index: u32) -> Descriptor {
        index as Descriptor
    }

    #[cfg(windows)]
    pub fn descriptor_of(index: u32) -> Descriptor {
        Descriptor::from(index) * 4
    }

    pub fn get(&self, index: u32) -> Option<&Entry> {
        let page = self.pages.get(index as usize / PAGE)?.as_ref()?;
        Some(&page[index as usize % PAGE])
    }

    pub fn get_mut(&mut self, index: u32) -> Option<&mut Entry> {
        let page = self.pages.get_mut(index as usize / PAGE)?.as_mut()?;
        Some(&mut page[index as usize % PAGE])
    }

    /// The entry, made if it is not there.
    pub fn entry(&mut self, index: u32) -> &mut Entry {
        let number = index as usize / PAGE;
        if number >= self.pages.len() {
            self.pages.resize_with(number + 1, || None);
        }
        let page =
            self.pages[number].get_or_insert_with(|| Box::new([const { Entry::EMPTY }; PAGE]));
        &mut page[index as usize % PAGE]
    }
}
