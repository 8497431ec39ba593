"""The page in a real browser, where there is one: whole, and nothing is asked for from anywhere."""

import re
import shutil
import socketserver
import subprocess
import threading

import matplotlib.image
import pytest
from report.conftest import Page, report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps"),
)

# Chromium's own errands (the time, its account, its search): no page could use these hosts for pictures or fonts.
OWN = re.compile(r"(www|accounts|clients[0-9]*|android\.clients|mtalk)\.google\.com|update\.googleapis\.com")

pytestmark = [pytest.mark.cli, pytest.mark.skipif(BROWSER is None, reason="no chromium here")]


class _Proxy(socketserver.ThreadingTCPServer):
    """Takes every request that leaves the browser, notes where it was going, and answers nothing."""

    daemon_threads = True

    def __init__(self):
        self.asked = []
        super().__init__(("127.0.0.1", 0), _Note)


class _Note(socketserver.StreamRequestHandler):
    def handle(self):
        self.server.asked.append(self.rfile.readline().decode("latin-1").strip())


@pytest.fixture
def proxy():
    with _Proxy() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _browse(path, proxy, *options):
    """What the browser prints, and what it asked the network for."""
    profile = path.parent / "profile"
    where = (f"--proxy-server=http://127.0.0.1:{proxy.server_address[1]}", "--proxy-bypass-list=<-loopback>")
    done = subprocess.run(
        [BROWSER, *QUIET, *where, f"--user-data-dir={profile}", *options, path.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout, [line for line in proxy.asked if not OWN.search(line.split("?")[0])]


def test_a_page_that_asks_for_something_is_noticed(proxy, tmp_path):
    page = tmp_path / "asks.html"
    page.write_text('<!DOCTYPE html><title>x</title><img src="http://elsewhere.invalid/picture.png">')
    _, asked = _browse(page, proxy, "--dump-dom")
    assert any("elsewhere.invalid" in line for line in asked)


def test_the_report_is_whole_and_asks_for_nothing(fitted, proxy):
    written = report(fitted)
    path = fitted.with_name("report.html")
    dom, asked = _browse(path, proxy, "--dump-dom")
    assert asked == []
    found = Page(dom.strip())
    assert found.headings == written.headings
    assert found.words.split() == written.words.split()
    assert found.tables == written.tables
    picture = path.with_name("page.png")
    _browse(path, proxy, f"--screenshot={picture}", "--window-size=1200,3000")
    pixels = matplotlib.image.imread(picture)[..., :3]
    assert pixels.shape == (3000, 1200, 3)
    assert len({tuple(row) for row in (pixels[::7, ::7] * 255).astype(int).reshape(-1, 3)}) > 20  # maps were drawn


def test_the_browser_stops_what_the_policy_forbids(fitted, proxy):
    """Even if something were to slip through the escapes."""
    report(fitted, options=["--no-markers"])
    path = fitted.with_name("report.html")
    slipped = '<img src="http://elsewhere.invalid/x.png"><script>document.title = "run"</script>'
    path.write_text(path.read_text().replace("<h3>Scores", f"{slipped}<h3>Scores"))
    dom, asked = _browse(path, proxy, "--dump-dom")
    assert asked == []
    assert "<title>Spatial domains of one</title>" in dom
