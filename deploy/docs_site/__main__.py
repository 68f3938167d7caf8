"""`python -m deploy.docs_site [FOLDER]` builds the site into FOLDER (default: site). What stood there is replaced."""

import sys
from pathlib import Path

from deploy.docs_site.build import BuildError, build

if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "site")
    try:
        pages = build(folder)
    except BuildError as error:
        sys.exit(f"The site was not built. {error}")
    print(f"{pages} pages in {folder}. To read them: {sys.executable} -m http.server --bind 127.0.0.1 -d {folder}")
