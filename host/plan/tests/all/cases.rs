//! Every file under `tests/cases` is a pipeline above a line of dashes and the expected text below. `PURLIN_REWRITE=1` writes
//! what planning says into the files instead; read the difference then.

use std::path::Path;

use crate::{invariants, language};

#[test]
fn cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let rewrite = std::env::var_os("PURLIN_REWRITE").is_some();
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "test"));
    files.sort();
    assert!(files.len() >= 40, "only {} cases were found", files.len());
    let mut failed = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let (source, expected) = text.split_once("\n----\n").unwrap_or((text.trim_end(), ""));
        let case = language::parse(source, &folder);
        let said = match plan::plan(&case.pipeline, &case.capabilities) {
            Ok(plan) => {
                invariants::check(&plan);
                plan.explain()
            }
            Err(problems) => format!("{problems}\n"),
        };
        if rewrite {
            std::fs::write(&path, format!("{source}\n----\n{said}")).unwrap();
        } else if said != expected {
            failed.push(format!("{}\n--- expected\n{expected}\n--- found\n{said}", path.display()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
