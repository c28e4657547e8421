//! The document of DeleteObjects: read by a closed grammar, and written anew, so that the origin deletes the judged
//! objects.

use crate::reply::unescape;

/// The limit of keys is S3's.
const KEYS_MAX: usize = 1000;
/// The namespace that a document may name.
const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";
/// The fields that an `Object` may have.
const FIELDS: [&str; 5] = ["Key", "VersionId", "ETag", "LastModifiedTime", "Size"];

/// The objects to delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deletion {
    objects: Vec<Doomed>,
    quiet: Option<bool>,
}

/// One object: its key, and the other fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Doomed {
    key: String,
    others: Vec<(&'static str, String)>,
}

impl Deletion {
    /// Reads a document. `None` if any of it is not of the grammar, or it has no key or too many.
    pub(crate) fn read(document: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(document).ok().filter(|text| !text.contains('\0'))?;
        let mut rest = open(declaration(text.trim_start())?)?;
        let mut deletion = Self::default();
        loop {
            rest = rest.trim_start();
            if let Some(behind) = rest.strip_prefix("</Delete>") {
                let is_whole = behind.trim().is_empty() && (1..=KEYS_MAX).contains(&deletion.objects.len());
                return is_whole.then_some(deletion);
            }
            if let Some(behind) = rest.strip_prefix("<Object>") {
                let (object, behind) = Doomed::read(behind)?;
                deletion.objects.push(object);
                rest = behind;
                continue;
            }
            let (quiet, behind) = leaf(rest, "Quiet")?;
            if deletion.quiet.replace(quiet.trim().parse().ok()?).is_some() {
                return None;
            }
            rest = behind;
        }
    }

    /// Whether nothing but keys is listed.
    pub(crate) fn is_plain(&self) -> bool {
        self.objects.iter().all(|object| object.others.is_empty())
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.objects.iter().map(|object| object.key.as_str())
    }

    /// Writes it, in one way.
    pub(crate) fn write(&self) -> String {
        let mut text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Delete xmlns=\"{NAMESPACE}\">");
        if let Some(quiet) = self.quiet {
            text.push_str(&format!("<Quiet>{quiet}</Quiet>"));
        }
        for object in &self.objects {
            text.push_str(&format!("<Object><Key>{}</Key>", written(&object.key)));
            for (name, value) in &object.others {
                text.push_str(&format!("<{name}>{}</{name}>", written(value)));
            }
            text.push_str("</Object>");
        }
        text.push_str("</Delete>");
        text
    }
}

impl Doomed {
    fn read(mut rest: &str) -> Option<(Self, &str)> {
        let (mut key, mut others) = (None, Vec::new());
        loop {
            rest = rest.trim_start();
            if let Some(behind) = rest.strip_prefix("</Object>") {
                return Some((Self { key: key?, others }, behind));
            }
            let (name, (value, behind)) = FIELDS.iter().find_map(|name| Some((*name, leaf(rest, name)?)))?;
            let is_twice = if name == "Key" {
                key.replace(value).is_some()
            } else {
                let is_twice = others.iter().any(|(other, _)| *other == name);
                others.push((name, value));
                is_twice
            };
            if is_twice {
                return None;
            }
            rest = behind;
        }
    }
}

/// The text behind the XML declaration, if there is one; it may name UTF-8 only.
fn declaration(text: &str) -> Option<&str> {
    let Some(behind) = text.strip_prefix("<?xml") else {
        return Some(text);
    };
    let (inside, behind) = behind.split_once("?>")?;
    let is_utf8 = !inside.contains("encoding") || inside.to_ascii_lowercase().contains("utf-8");
    (is_utf8 && !inside.contains(['<', '>', '&'])).then_some(behind.trim_start())
}

/// The text behind `<Delete>`, with the namespace or without.
fn open(text: &str) -> Option<&str> {
    let (attributes, behind) = text.strip_prefix("<Delete")?.split_once('>')?;
    let allowed = [format!(" xmlns=\"{NAMESPACE}\""), format!(" xmlns='{NAMESPACE}'")];
    (attributes.is_empty() || allowed.iter().any(|one| one == attributes)).then_some(behind)
}

/// The text of an element without attributes, and the rest behind it. XML reads a bare CR as another character: it is
/// refused.
fn leaf<'a>(text: &'a str, name: &str) -> Option<(String, &'a str)> {
    let inside = text.strip_prefix('<')?.strip_prefix(name)?.strip_prefix('>')?;
    let (value, behind) = inside.split_at(inside.find('<')?);
    let behind = behind.strip_prefix("</")?.strip_prefix(name)?.strip_prefix('>')?;
    let value = unescape(value).filter(|_| !value.contains('\r'))?;
    (!value.contains('\0')).then_some((value, behind))
}

/// Text so that every parser reads the same: spaces at its ends and control characters are references.
fn written(text: &str) -> String {
    let trimmed = text.trim_matches(' ');
    let before = text.len() - text.trim_start_matches(' ').len();
    let mut written = String::new();
    for (at, c) in text.char_indices() {
        let is_end = c == ' ' && (at < before || at >= before + trimmed.len());
        match c {
            '&' => written.push_str("&amp;"),
            '<' => written.push_str("&lt;"),
            '>' => written.push_str("&gt;"),
            c if c.is_control() || is_end => written.push_str(&format!("&#{};", u32::from(c))),
            c => written.push(c),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_of_the_grammar_or_refused() {
        let with = |inside: &str| format!("<Delete>{inside}</Delete>");
        let object = |key: &str| with(&format!("<Object><Key>{key}</Key></Object>"));
        let named = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Delete xmlns=\"{NAMESPACE}\">\n <Quiet>true</Quiet>\n <Object>\n\
             <Key>a</Key><VersionId>v</VersionId></Object><Object><Key>b</Key></Object></Delete>\n"
        );
        let utf16: String = object("a").chars().flat_map(|c| [c, '\0']).collect();
        for (document, keys) in [
            (object("a"), Some(vec!["a"])),
            (object("a&amp;&#x63;&#13; "), Some(vec!["a&c\r "])),
            (named, Some(vec!["a", "b"])),
            (with(""), None),
            (with("<Object></Object>"), None),
            (with("<Object><Key>a</Key><Key>b</Key></Object>"), None),
            (with("<Object><Key\n>a</Key\n></Object>"), None),
            (with("<Object><Key\t>a</Key></Object>"), None),
            (
                with("<Object><Key>a</Key></Object><Object><Key\n>b</Key></Object>"),
                None,
            ),
            (with("<Object><s:Key>a</s:Key></Object>"), None),
            (with("<!-- --><Object><Key>a</Key></Object>"), None),
            (object("<![CDATA[a]]>"), None),
            (object("a\rb"), None),
            (object("a&#0;"), None),
            (object("&wrong;"), None),
            (object("a").replace("<Delete>", "<Delete xmlns=\"other\">"), None),
            (format!("{}<Delete/>", object("a")), None),
            (format!("<?xml encoding=\"UTF-16\"?>{}", object("a")), None),
            (utf16, None),
        ] {
            let read = Deletion::read(document.as_bytes());
            let found = read.as_ref().map(|read| read.keys().collect::<Vec<_>>());
            assert_eq!(found, keys, "{document:?}");
            if let Some(read) = read {
                assert_eq!(Deletion::read(read.write().as_bytes()), Some(read), "{document:?}");
            }
        }
    }
}
