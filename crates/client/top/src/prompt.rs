//! Questions and answers of any screen besides what it shows, and the text that its rows are filtered by.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::actions::KeyAction;

/// Result of a key press.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOutcome {
    Draw,
    /// Redraw, and have the server do the prompt's next action.
    Act,
    /// Show the chosen host of a fleet.
    Open,
    /// Show the hosts of the fleet again.
    Back,
    Quit,
}

/// Questions, answers and help.
#[derive(Debug, Clone, Default)]
pub struct Prompt {
    /// Whether the keys are explained.
    pub is_help: bool,
    /// The change that waits for a yes.
    pub asked: Option<KeyAction>,
    /// Next request to the server.
    pub next: Option<KeyAction>,
    /// Result of the last action; its first line where that is all there is room for.
    pub done: Option<Result<String, String>>,
}

impl Prompt {
    /// Result of a key that works whatever else is shown; `None` if it has none.
    pub fn press_any(&self, key: KeyEvent) -> Option<KeyOutcome> {
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        (key.code == KeyCode::Char('c') && has_control).then_some(KeyOutcome::Quit)
    }

    /// Result of a key for help, question or answer; `None` if there is none of them that it concerns.
    pub fn press(&mut self, key: KeyCode) -> Option<KeyOutcome> {
        if std::mem::take(&mut self.is_help) {
            return Some(KeyOutcome::Draw);
        }
        // Only a yes is a yes.
        if let Some(action) = self.asked.take() {
            let is_yes = key == KeyCode::Char('y');
            return Some(if is_yes { self.act(action) } else { KeyOutcome::Draw });
        }
        // It covered the table: the key closes it.
        self.done.take().is_some_and(|done| is_long(&done)).then_some(KeyOutcome::Draw)
    }

    /// Has the server do something.
    pub fn act(&mut self, action: KeyAction) -> KeyOutcome {
        self.next = Some(action);
        KeyOutcome::Act
    }
}

/// Whether what an action said takes more than a line.
pub fn is_long(done: &Result<String, String>) -> bool {
    let (Ok(text) | Err(text)) = done;
    text.trim_end().contains('\n')
}

/// The text that rows must contain.
#[derive(Debug, Clone, Default)]
pub struct RowFilter {
    /// In lower case.
    text: String,
    /// Whether keys edit it.
    pub is_editing: bool,
}

impl RowFilter {
    /// The text, in lower case.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether all rows are shown.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Whether a row with this text is shown.
    pub fn accepts(&self, text: impl FnOnce() -> String) -> bool {
        self.text.is_empty() || text().to_lowercase().contains(&self.text)
    }

    /// Shows all rows.
    pub fn clear(&mut self) {
        self.text.clear();
    }

    /// Whether the key was for the filter.
    pub fn edit(&mut self, key: KeyCode) -> bool {
        if !self.is_editing {
            return false;
        }
        match key {
            KeyCode::Enter => self.is_editing = false,
            KeyCode::Esc => {
                self.is_editing = false;
                self.text.clear();
            }
            KeyCode::Backspace => {
                self.text.pop();
            }
            KeyCode::Char(letter) => self.text.extend(letter.to_lowercase()),
            _ => {}
        }
        true
    }
}
