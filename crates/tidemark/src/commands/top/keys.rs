//! The meaning of keys.

use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};

/// The wish of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Quit,
    /// Sort by the column so many places further.
    Sort(isize),
    Reverse,
    /// So many rows down.
    Scroll(isize),
}

/// Rows of a page.
const PAGE: isize = 20;

pub(super) fn act_of(event: &Event) -> Option<Act> {
    let Event::Key(key) = event else { return None };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Act::Quit,
        KeyCode::Char('c') if is_control => Act::Quit,
        KeyCode::Right | KeyCode::Char('s' | '>') => Act::Sort(1),
        KeyCode::Left | KeyCode::Char('<') => Act::Sort(-1),
        KeyCode::Char('r') => Act::Reverse,
        KeyCode::Down | KeyCode::Char('j') => Act::Scroll(1),
        KeyCode::Up | KeyCode::Char('k') => Act::Scroll(-1),
        KeyCode::PageDown | KeyCode::Char(' ') => Act::Scroll(PAGE),
        KeyCode::PageUp => Act::Scroll(-PAGE),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyEvent;

    use super::*;

    #[test]
    fn keys_mean_what_the_help_says() {
        let press = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        let plain = |code| press(code, KeyModifiers::NONE);
        for (event, expected) in [
            (plain(KeyCode::Char('q')), Some(Act::Quit)),
            (plain(KeyCode::Esc), Some(Act::Quit)),
            (press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Act::Quit)),
            (plain(KeyCode::Char('c')), None),
            (plain(KeyCode::Right), Some(Act::Sort(1))),
            (plain(KeyCode::Left), Some(Act::Sort(-1))),
            (plain(KeyCode::Char('r')), Some(Act::Reverse)),
            (plain(KeyCode::PageUp), Some(Act::Scroll(-PAGE))),
            (Event::Resize(80, 24), None),
        ] {
            assert_eq!(act_of(&event), expected, "{event:?}");
        }
    }
}
