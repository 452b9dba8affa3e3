//! The mark that distinguishes watcher tokens from those of fibers (their waits and timeouts).

use reactor::Token;

/// Set in a watcher's token.
pub const WATCHER: u32 = 1 << 31;

/// The number of index bits below the marks.
const PLACE_BITS: u32 = 30;

const _: () = assert!(
    Token::MAX_INDEX > WATCHER,
    "32-bit platforms have no room for the mark"
);

/// Whether the token belongs to a watcher.
pub fn is_of_watcher(token: Token) -> bool {
    token.index() & WATCHER != 0
}

/// The token of a timeout or watcher without its mark, as a small Integer for Ruby.
pub fn unmarked(token: Token) -> u64 {
    let place = u64::from(token.index()) & ((1 << PLACE_BITS) - 1);
    u64::from(token.generation()) << PLACE_BITS | place
}

/// The inverse of [`unmarked`] for a token with this mark (0: a timeout). Any other number gives a token that matches
/// nothing, or another timeout or watcher.
pub fn marked(number: u64, mark: u32) -> Token {
    let place = number as u32 & ((1 << PLACE_BITS) - 1);
    Token::new(place | mark, (number >> PLACE_BITS) as u32)
}

#[cfg(test)]
mod tests {
    use reactor::Token;

    use super::{WATCHER, is_of_watcher, marked, unmarked};

    #[test]
    fn a_token_without_its_mark_is_found_again_by_a_small_integer() {
        const MAX_FIXNUM: u64 = (1 << 62) - 1;
        for mark in [0, WATCHER] {
            for place in [0, 1, (1 << 30) - 1] {
                for generation in [0, u32::MAX] {
                    let token = Token::new(place | mark, generation);
                    assert!(unmarked(token) <= MAX_FIXNUM);
                    assert_eq!(token, marked(unmarked(token), mark));
                    assert_eq!(mark == WATCHER, is_of_watcher(token));
                }
            }
        }
    }
}
