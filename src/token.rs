//! Names for slots that can be reused without confusion.

/// A slot's index and the generation of its use, in one `usize`: what a stale event carries never matches the slot's
/// present use.
///
/// With 64-bit pointers index and generation have 32 bits each; with 32-bit pointers 20 and 12 (the rest is cut off).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(usize);

const INDEX_BITS: u32 = if usize::BITS >= 64 { 32 } else { 20 };
const INDEX_MASK: usize = (1 << INDEX_BITS) - 1;
const GENERATION_MASK: u32 = (usize::MAX >> INDEX_BITS) as u32;

impl Token {
    /// Reserved for the drivers' own wake-ups; never shown to anybody.
    pub const WAKE: Self = Self(usize::MAX);

    /// The token of one use of a slot.
    pub const fn new(index: u32, generation: u32) -> Self {
        let generation = (generation & GENERATION_MASK) as usize;
        Self(generation << INDEX_BITS | index as usize & INDEX_MASK)
    }

    /// Which slot.
    pub const fn index(self) -> u32 {
        (self.0 & INDEX_MASK) as u32
    }

    /// Which use of the slot.
    pub const fn generation(self) -> u32 {
        (self.0 >> INDEX_BITS) as u32
    }
}

impl From<Token> for usize {
    fn from(token: Token) -> usize {
        token.0
    }
}

impl From<usize> for Token {
    fn from(number: usize) -> Self {
        Self(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_and_generation_come_back() {
        let token = Token::new(0xF_FFFF, 0xFFF);
        assert_eq!((token.index(), token.generation()), (0xF_FFFF, 0xFFF));
        assert_ne!(token, Token::WAKE);
    }
}
