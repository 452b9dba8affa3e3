//! The marks by which tokens tell whose they are.
//!
//! | bit 31 of the index | bit 30 | the token of |
//! |---------------------|--------|--------------|
//! | 0                   | any    | a fiber's wait |
//! | 1                   | 0      | a timeout |
//! | 1                   | 1      | a watcher |

use reactor::Token;

const NO_FIBER: u32 = 1 << 31;

/// The marks of a timeout's token.
pub const TIMEOUT: u32 = NO_FIBER;

/// The marks of a watcher's token.
pub const WATCHER: u32 = NO_FIBER | 1 << 30;

/// The bits of the index below the marks.
const PLACE_BITS: u32 = 30;

const _: () = assert!(
    Token::MAX_INDEX > WATCHER,
    "32-bit platforms have no room for the marks"
);

/// Whether the token is one of a fiber's wait.
pub fn is_of_fiber(token: Token) -> bool {
    token.index() & NO_FIBER == 0
}

/// Whether the token is one of a watcher.
pub fn is_of_watcher(token: Token) -> bool {
    token.index() & WATCHER == WATCHER
}

/// The token of a timeout or a watcher without its marks: a small Integer for Ruby.
pub fn unmarked(token: Token) -> u64 {
    let place = u64::from(token.index()) & ((1 << PLACE_BITS) - 1);
    u64::from(token.generation()) << PLACE_BITS | place
}

/// The token with these marks that [`unmarked`] made the number of. Any other number makes a token that fits nothing, or another
/// timeout or watcher.
pub fn marked(number: u64, marks: u32) -> Token {
    let place = number as u32 & ((1 << PLACE_BITS) - 1);
    Token::new(place | marks, (number >> PLACE_BITS) as u32)
}

#[cfg(test)]
mod tests {
    use reactor::Token;

    use super::{TIMEOUT, WATCHER, is_of_fiber, is_of_watcher, marked, unmarked};

    #[test]
    fn a_token_without_its_marks_is_found_again_by_a_small_integer() {
        const MAX_FIXNUM: u64 = (1 << 62) - 1;
        for marks in [TIMEOUT, WATCHER] {
            for place in [0, 1, (1 << 30) - 1] {
                for generation in [0, u32::MAX] {
                    let token = Token::new(place | marks, generation);
                    assert!(unmarked(token) <= MAX_FIXNUM);
                    assert_eq!(token, marked(unmarked(token), marks));
                    assert!(!is_of_fiber(token));
                    assert_eq!(marks == WATCHER, is_of_watcher(token));
                }
            }
        }
        assert!(is_of_fiber(Token::new(WATCHER - TIMEOUT, 0)));
    }
}
