"""A real browser to open a page in: Debian's Chromium, without a window.

Its driver speaks the WebDriver protocol (w3.org/TR/webdriver2), JSON over HTTP;
what is needed of it is here.
"""

import base64
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, Optional

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
KEYS = {
  'Tab': '\ue004',
  'Space': '\ue00d',
  'PageUp': '\ue00e',
  'PageDown': '\ue00f',
  'End': '\ue010',
  'Home': '\ue011',
  'ArrowLeft': '\ue012',
  'ArrowUp': '\ue013',
  'ArrowRight': '\ue014',
  'ArrowDown': '\ue015',
}
_ARGUMENTS = (
  '--headless=new',
  '--no-sandbox',  # whose processes root may not start
  '--disable-gpu',
  '--disable-dev-shm-usage',
  '--hide-scrollbars',
)


@contextlib.contextmanager
def started(folder: pathlib.Path) -> Iterator['Browser']:
  """Hands out a browser; skips the test where there is none to be had.

  Args:
    folder: to keep its files in.
  """
  done = subprocess.run(
    [CHECKOUT / '.ci' / 'install_browser'],
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  if done.returncode:
    pytest.skip(f'no browser: {done.stderr.strip()}')
  driver = subprocess.Popen(
    [str(shutil.which('chromedriver')), '--port=0'],
    stdout=subprocess.PIPE,
    text=True,
    env={**os.environ, 'HOME': str(folder), 'TMPDIR': str(folder)},
  )
  try:
    browser = Browser(_address(driver), folder)
    yield browser
    browser.close()
  finally:
    driver.terminate()
    driver.wait()


def _address(driver: 'subprocess.Popen[str]') -> str:
  assert driver.stdout is not None
  for line in driver.stdout:
    if found := re.search(r'successfully on port (\d+)', line):
      return f'http://127.0.0.1:{found[1]}'
  raise AssertionError('chromedriver ended before it listened')


class Browser:
  """A session of the browser with one window."""

  def __init__(self, address: str, folder: pathlib.Path) -> None:
    self._address = address
    self._session = ''
    options = {
      'binary': shutil.which('chromium'),
      'args': [*_ARGUMENTS, f'--user-data-dir={folder / "profile"}'],
    }
    always = {
      'goog:chromeOptions': options,
      'goog:loggingPrefs': {'browser': 'ALL', 'performance': 'ALL'},
    }
    made = self._ask('/session', {'capabilities': {'alwaysMatch': always}})
    self._session = f'/session/{made["sessionId"]}'

  def close(self) -> None:
    """Ends the browser."""
    self._ask('', method='DELETE')

  def open(self, path: pathlib.Path) -> None:
    """Opens a file."""
    self._ask('/url', {'url': path.as_uri()})

  def run(self, script: str, *arguments: Any) -> Any:
    """Runs the body of a function in the page and returns what it returns."""
    return self._ask('/execute/sync', {'script': script, 'args': arguments})

  def press(self, *keys: str) -> None:
    """Presses keys one after the other, wherever the focus is."""
    actions = [
      {'type': kind, 'value': KEYS.get(key, key)}
      for key in keys
      for kind in ('keyDown', 'keyUp')
    ]
    self._act({'type': 'key', 'id': 'keyboard', 'actions': actions})

  def point(self, x: float, y: float) -> None:
    """Moves the pointer to a place in the window."""
    move = {'type': 'pointerMove', 'x': round(x), 'y': round(y), 'duration': 0}
    self._act({'type': 'pointer', 'id': 'mouse', 'actions': [move]})

  def resize(self, width: int, height: int) -> None:
    """Makes the window so many CSS pixels wide and high."""
    self._devtools(
      'Emulation.setDeviceMetricsOverride',
      width=width,
      height=height,
      deviceScaleFactor=1,
      mobile=False,
    )

  def prefer(self, scheme: str) -> None:
    """Makes the page 'light' or 'dark'."""
    feature = {'name': 'prefers-color-scheme', 'value': scheme}
    self._devtools('Emulation.setEmulatedMedia', features=[feature])

  def picture(self) -> bytes:
    """The whole page as PNG."""
    size = self.run(
      'const e = document.documentElement;return [innerWidth, e.scrollHeight]'
    )
    clip = {'x': 0, 'y': 0, 'width': size[0], 'height': size[1], 'scale': 1}
    taken = self._devtools(
      'Page.captureScreenshot', captureBeyondViewport=True, clip=clip
    )
    return base64.b64decode(taken['data'])

  def complaints(self) -> list[str]:
    """What the browser has said about the page since it was last asked."""
    entries = self._ask('/se/log', {'type': 'browser'})
    return [entry['message'] for entry in entries]

  def requests(self) -> list[str]:
    """The addresses that were asked for since they were last asked for."""
    entries = self._ask('/se/log', {'type': 'performance'})
    messages = [json.loads(entry['message'])['message'] for entry in entries]
    return [
      message['params']['request']['url']
      for message in messages
      if message['method'] == 'Network.requestWillBeSent'
    ]

  def _act(self, source: dict[str, Any]) -> None:
    self._ask('/actions', {'actions': [source]})

  def _devtools(self, command: str, **parameters: Any) -> Any:
    return self._ask(
      '/goog/cdp/execute', {'cmd': command, 'params': parameters}
    )

  def _ask(
    self,
    path: str,
    content: Optional[dict[str, Any]] = None,
    method: str = 'POST',
  ) -> Any:
    request = urllib.request.Request(
      f'{self._address}{self._session}{path}',
      json.dumps(content or {}).encode(),
      {'Content-Type': 'application/json'},
      method=method,
    )
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
      with direct.open(request, timeout=60) as answer:
        return json.load(answer)['value']
    except urllib.error.HTTPError as error:
      raise AssertionError(error.read().decode()) from error
