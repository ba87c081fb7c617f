"""What MkDocs does not know of this repository.

README.md, CONTRIBUTING.md, CHANGELOG.md and the notebook in examples/ stand
outside the site's folder, and documents link to files of the repository that
are not part of the site.
"""

import pathlib
import posixpath
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ABOVE = {
  'README.md': 'index.md',
  'CONTRIBUTING.md': 'contributing.md',
  'CHANGELOG.md': 'changelog.md',
}
NOTEBOOK = 'synthesizer.ipynb'
LINK = re.compile(r'(!?)\[((?:[^][]|\[[^][]*\])*)\]\(([^)\s]+)\)', re.S)


@event_priority(100)  # before notebooks are converted
def on_files(files: Files, config: MkDocsConfig) -> Files:
  """Adds the documents that stand outside docs/."""
  root = pathlib.Path(config.config_file_path).parent
  examples = str(root / 'examples')
  files.append(
    File(NOTEBOOK, examples, config.site_dir, use_directory_urls=True)
  )
  for name, page in ABOVE.items():
    text = (root / name).read_text(encoding='utf-8')
    files.append(File.generated(config, page, content=text))
  return files


def on_page_markdown(
  markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
  """Turns links between files of the repository into links of the site."""
  names = {page: name for name, page in ABOVE.items()}
  uri = page.file.src_uri
  here = posixpath.dirname(names.get(uri, f'docs/{uri}'))

  def link(match: re.Match[str]) -> str:
    mark, text, target = match.groups()
    if re.match(r'#|\w+:', target):
      return match[0]
    path, hash_, anchor = target.partition('#')
    path = posixpath.normpath(posixpath.join(here, path))
    if path in ABOVE:
      return f'{mark}[{text}]({ABOVE[path]}{hash_}{anchor})'
    if path.startswith('docs/'):
      return f'{mark}[{text}]({path.removeprefix("docs/")}{hash_}{anchor})'
    if config.repo_url:
      return f'{mark}[{text}]({config.repo_url.rstrip("/")}/blob/HEAD/{path})'
    return text  # a file outside of the site, and no repository to link to

  return LINK.sub(link, markdown)
