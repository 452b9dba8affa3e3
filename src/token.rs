//! The number an event carries.

/// An index and a generation in one word.
///
/// The caller increments the generation whenever an index is reused, so that it can detect and drop stale events. On
/// 64-bit platforms index and generation have 32 bits each. On 32-bit platforms the index has 20 bits and the
/// generation 12; higher bits are cut off.
///
/// ```
/// use reactor::Token;
///
/// let token = Token::new(7, 3);
/// assert_eq!((token.index(), token.generation()), (7, 3));
/// assert_eq!(Token::from(usize::from(token)), token);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(usize);

impl Token {
    const INDEX_BITS: u32 = if usize::BITS >= 64 { 32 } else { 20 };
    const INDEX_MASK: usize = (1 << Self::INDEX_BITS) - 1;

    /// Reserved for the driver's own wake-up. Drivers never report it, and callers must not register it.
    pub const WAKE: Self = Self(usize::MAX);

    /// The largest index. The next one is reserved for [`Token::WAKE`].
    pub const MAX_INDEX: u32 = (Self::INDEX_MASK - 1) as u32;

    /// Creates a token from an index and a generation, each truncated to its number of bits.
    pub const fn new(index: u32, generation: u32) -> Self {
        let generation = (generation as usize).wrapping_shl(Self::INDEX_BITS);
        Self(generation | (index as usize & Self::INDEX_MASK))
    }

    /// The index.
    pub const fn index(self) -> u32 {
        (self.0 & Self::INDEX_MASK) as u32
    }

    /// The generation.
    pub const fn generation(self) -> u32 {
        (self.0 >> Self::INDEX_BITS) as u32
    }
}

impl From<usize> for Token {
    fn from(word: usize) -> Self {
        Self(word)
    }
}

impl From<Token> for usize {
    fn from(token: Token) -> Self {
        token.0
    }
}

#[cfg(test)]
mod tests {
    use super::Token;

    #[test]
    fn index_and_generation_do_not_overlap() {
        let token = Token::new(Token::MAX_INDEX, 0);
        assert_eq!((token.index(), token.generation()), (Token::MAX_INDEX, 0));
        let token = Token::new(0, 0xfff);
        assert_eq!((token.index(), token.generation()), (0, 0xfff));
    }

    #[test]
    fn no_usable_index_makes_the_wake_token() {
        assert_ne!(Token::new(Token::MAX_INDEX, u32::MAX), Token::WAKE);
        assert_eq!(Token::new(u32::MAX, u32::MAX), Token::WAKE);
    }

    #[test]
    fn generation_wraps() {
        let last = Token::new(5, u32::MAX);
        let next = Token::new(5, last.generation().wrapping_add(1));
        assert_eq!(next, Token::new(5, 0));
    }
}
