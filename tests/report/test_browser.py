"""The page in a real browser, where there is one, asks for nothing, and runs nothing but its own script."""

import re
import socketserver
import subprocess
import threading

import pytest
from report.browser import BROWSER, QUIET
from report.conftest import report

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


def test_the_report_asks_for_nothing(fitted, proxy):
    report(fitted, options=["--no-markers"])
    for seconds in (10, 60, 300):  # virtual ones: where the machine is busy, maps are drawn later in them
        dom, asked = _browse(
            fitted.with_name("report.html"), proxy, "--dump-dom", f"--virtual-time-budget={seconds}000"
        )
        assert asked == []
        if "<canvas" in dom:
            break
    assert "<canvas" in dom  # the script has had its time


def test_the_browser_stops_what_the_policy_forbids(fitted, proxy):
    """Even if something were to slip through the escapes."""
    report(fitted, options=["--no-markers"])
    path = fitted.with_name("report.html")
    slipped = '<img src="http://elsewhere.invalid/x.png"><script>document.title = "run"</script>'
    path.write_text(path.read_text().replace("<h3>Scores", f"{slipped}<h3>Scores"))
    dom, asked = _browse(path, proxy, "--dump-dom")
    assert asked == []
    assert "<title>Spatial domains of one</title>" in dom
