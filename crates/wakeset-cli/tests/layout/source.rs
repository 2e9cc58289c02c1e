//! What one Rust file declares and which paths it names, read from its tokens.
//!
//! Tokens rather than a syntax tree, because macros are read too: a path inside an invocation or a
//! definition of a macro is an import like any other. Code for tests only (`#[cfg(test)]`) is left
//! out.

use proc_macro2::{Delimiter, Group, Ident, Spacing, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::str::FromStr;

/// A file's own view of itself.
#[derive(Debug, Default)]
pub struct Source {
    /// Modules in files of their own.
    pub modules: Vec<Declaration>,
    /// Modules in this file, by path within it.
    pub inline: Vec<Vec<String>>,
    /// Names that `use` brings into a module of this file.
    pub uses: Vec<Use>,
    /// Paths named outside `use`, with two segments or more.
    pub paths: Vec<Named>,
    /// Items defined in a module of this file.
    pub defined: BTreeSet<(Vec<String>, String)>,
    /// Macros defined by `macro_rules!`.
    pub macros: BTreeSet<String>,
    /// Functions with a body.
    pub functions: Vec<Function>,
}

/// `mod name;`
#[derive(Debug)]
pub struct Declaration {
    /// The module of this file in which it stands.
    pub module: Vec<String>,
    pub name: String,
    /// `#[path = "…"]`
    pub path: Option<String>,
}

/// One name of a `use` declaration.
#[derive(Debug)]
pub struct Use {
    pub named: Named,
    /// The name it gets here, `*` for all.
    pub name: String,
}

/// A path, and where it stands.
#[derive(Clone, Debug)]
pub struct Named {
    /// The module of this file in which it stands.
    pub module: Vec<String>,
    pub segments: Vec<String>,
    pub line: usize,
}

/// A function with a body.
#[derive(Debug)]
pub struct Function {
    pub name: String,
    pub lines: usize,
}

impl Source {
    /// Reads a file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let tokens = TokenStream::from_str(text).map_err(|error| error.to_string())?;
        let mut source = Self::default();
        source.read(tokens, &[]);
        Ok(source)
    }

    fn read(&mut self, tokens: TokenStream, module: &[String]) {
        let mut tokens = Tokens { all: tokens.into_iter().collect(), next: 0 };
        let mut attributes = Attributes::default();
        while let Some(token) = tokens.take() {
            if tokens.attribute(&token, &mut attributes) {
                continue;
            }
            if std::mem::take(&mut attributes.is_for_tests) {
                tokens.skip_item(&token);
                attributes = Attributes::default();
                continue;
            }
            match &token {
                TokenTree::Group(group) => self.read(group.stream(), module),
                TokenTree::Ident(word) => self.word(word, &mut tokens, module, &mut attributes),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    fn word(
        &mut self,
        word: &Ident,
        tokens: &mut Tokens,
        module: &[String],
        attributes: &mut Attributes,
    ) {
        match word.to_string().as_str() {
            "mod" => {
                let path = attributes.path.take();
                let Some(name) = tokens.identifier() else { return };
                let inside: Vec<_> = module.iter().chain([&name]).cloned().collect();
                match tokens.take() {
                    Some(TokenTree::Group(body)) => {
                        self.inline.push(inside.clone());
                        self.read(body.stream(), &inside);
                    }
                    _ => self.modules.push(Declaration { module: module.to_vec(), name, path }),
                }
            }
            "use" => self.use_tree(tokens, module, &mut Vec::new()),
            // `pub(in crate::module)` imports nothing.
            "pub" => tokens.skip_group(Delimiter::Parenthesis),
            "macro_rules" if tokens.punctuation('!') => {
                self.macros.extend(tokens.identifier());
            }
            "fn" => {
                let Some(name) = tokens.identifier() else { return };
                self.defined.insert((module.to_vec(), name.clone()));
                if let Some(body) = tokens.body() {
                    let line = word.span().start().line;
                    let lines = body.span_close().end().line + 1 - line;
                    self.functions.push(Function { name, lines });
                }
            }
            // A qualifier of a function, which comes next.
            "const" if tokens.is_keyword(&["fn", "unsafe", "extern", "async"]) => {}
            "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" => {
                if tokens.is_keyword(&["mut"]) {
                    tokens.next += 1;
                }
                self.defined.extend(tokens.identifier().map(|name| (module.to_vec(), name)));
            }
            first => {
                let line = word.span().start().line;
                let segments = tokens.path(first.to_string());
                if segments.len() > 1 {
                    self.paths.push(Named { module: module.to_vec(), segments, line });
                }
            }
        }
    }

    /// What follows `use`, or one part of a list in one.
    fn use_tree(&mut self, tokens: &mut Tokens, module: &[String], before: &mut Vec<String>) {
        let depth = before.len();
        let mut line = 0;
        let mut name = None;
        while let Some(token) = tokens.take() {
            match &token {
                TokenTree::Ident(word) if word == "as" => name = tokens.identifier(),
                TokenTree::Ident(word) => {
                    line = word.span().start().line;
                    before.push(word.to_string());
                }
                TokenTree::Punct(mark) if mark.as_char() == '*' => {
                    line = mark.span().start().line;
                    name = Some("*".to_string());
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => {}
                TokenTree::Group(list) => {
                    let mut inside = Tokens { all: list.stream().into_iter().collect(), next: 0 };
                    while inside.next < inside.all.len() {
                        self.use_tree(&mut inside, module, before);
                    }
                    before.truncate(depth);
                    line = 0;
                }
                // The end of the declaration, or of one part of a list.
                TokenTree::Punct(_) | TokenTree::Literal(_) => break,
            }
        }
        if line != 0 {
            let mut segments = before.clone();
            if segments.last().is_some_and(|last| last == "self") && segments.len() > 1 {
                segments.pop();
            }
            let name = name.unwrap_or_else(|| segments.last().cloned().unwrap_or_default());
            let named = Named { module: module.to_vec(), segments, line };
            self.uses.push(Use { named, name });
        }
        before.truncate(depth);
    }
}

/// What the attributes before an item say.
#[derive(Default)]
struct Attributes {
    is_for_tests: bool,
    path: Option<String>,
}

impl Attributes {
    fn note(&mut self, group: &Group) {
        let text: String = group.stream().to_string().split_whitespace().collect();
        if let Some(condition) = text.strip_prefix("cfg(") {
            let words = condition.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            let is_for_tests = words.clone().any(|word| word == "test")
                && !condition.contains("not(test)")
                && !condition.starts_with("any(");
            self.is_for_tests |= is_for_tests;
        } else if let Some(path) = text.strip_prefix("path=") {
            self.path = Some(path.trim_matches('"').to_string());
        }
    }
}

/// Tokens of one group, read from the first to the last.
struct Tokens {
    all: Vec<TokenTree>,
    next: usize,
}

impl Tokens {
    fn take(&mut self) -> Option<TokenTree> {
        let token = self.all.get(self.next).cloned();
        self.next += 1;
        token
    }

    fn is_punctuation(&self, at: usize, mark: char) -> bool {
        matches!(self.all.get(at), Some(TokenTree::Punct(it)) if it.as_char() == mark)
    }

    /// Whether `token` begins an attribute, which is noted then.
    fn attribute(&mut self, token: &TokenTree, attributes: &mut Attributes) -> bool {
        if !matches!(token, TokenTree::Punct(it) if it.as_char() == '#') {
            return false;
        }
        let is_inner = self.is_punctuation(self.next, '!');
        let at = self.next + usize::from(is_inner);
        let Some(TokenTree::Group(group)) = self.all.get(at) else { return false };
        if group.delimiter() != Delimiter::Bracket {
            return false;
        }
        if !is_inner {
            attributes.note(group);
        }
        self.next = at + 1;
        true
    }

    /// Skips the rest of the item, or of the field or arm, that begins with `first`.
    fn skip_item(&mut self, first: &TokenTree) {
        const WITH_BODY: [&str; 9] =
            ["fn", "mod", "struct", "enum", "impl", "trait", "macro_rules", "unsafe", "async"];
        let mut token = Some(first.clone());
        let (mut has_body, mut to_semicolon) = (false, false);
        while let Some(it) = token {
            match &it {
                TokenTree::Ident(word) => {
                    let word = word.to_string();
                    has_body |= WITH_BODY.contains(&word.as_str());
                    to_semicolon |=
                        !has_body && ["use", "const", "static", "type", "let"].contains(&&*word);
                }
                TokenTree::Group(group)
                    if group.delimiter() == Delimiter::Brace && !to_semicolon =>
                {
                    return;
                }
                TokenTree::Punct(mark) if mark.as_char() == ';' => return,
                TokenTree::Punct(mark) if mark.as_char() == ',' && !has_body && !to_semicolon => {
                    return;
                }
                _ => {}
            }
            token = self.take();
        }
    }

    fn identifier(&mut self) -> Option<String> {
        let TokenTree::Ident(name) = self.all.get(self.next)? else { return None };
        let name = name.to_string();
        self.next += 1;
        Some(name)
    }

    fn is_keyword(&self, words: &[&str]) -> bool {
        let next = self.all.get(self.next);
        matches!(next, Some(TokenTree::Ident(it)) if words.iter().any(|word| it == word))
    }

    fn punctuation(&mut self, mark: char) -> bool {
        let found = self.is_punctuation(self.next, mark);
        self.next += usize::from(found);
        found
    }

    fn skip_group(&mut self, delimiter: Delimiter) {
        let next = self.all.get(self.next);
        if matches!(next, Some(TokenTree::Group(it)) if it.delimiter() == delimiter) {
            self.next += 1;
        }
    }

    /// The body of the function whose name has just been read. It is not taken.
    fn body(&self) -> Option<Group> {
        let end = |token: &&TokenTree| match token {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            TokenTree::Punct(mark) => mark.as_char() == ';',
            TokenTree::Ident(_) | TokenTree::Literal(_) => false,
        };
        match self.all[self.next..].iter().find(end)? {
            TokenTree::Group(group) => Some(group.clone()),
            _ => None,
        }
    }

    /// The rest of the path that begins with `first`; what follows `::` is read even where the
    /// path began earlier.
    fn path(&mut self, first: String) -> Vec<String> {
        // The end of a path whose beginning is no word, as in `<T as Trait>::NAME`.
        let continues = self.next >= 3
            && self.is_punctuation(self.next - 2, ':')
            && self.is_punctuation(self.next - 3, ':');
        let mut segments = vec![first];
        while self.is_colons() {
            let Some(TokenTree::Ident(word)) = self.all.get(self.next + 2) else { break };
            segments.push(word.to_string());
            self.next += 3;
        }
        if continues { Vec::new() } else { segments }
    }

    fn is_colons(&self) -> bool {
        let joint = matches!(self.all.get(self.next),
            Some(TokenTree::Punct(it)) if it.as_char() == ':' && it.spacing() == Spacing::Joint);
        joint && self.is_punctuation(self.next + 1, ':')
    }
}
