"""The page: well-formed, self-contained, escaped, the same for the same runs, and with the right numbers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mlm.report.build import Report, build
from mlm.report.gather import gather
from tests.unit.report.written import write_run, write_study

NASTY = '</title><script>alert("x")</script> & $\\frac{1}{2}$ 日本 _<svg onload=1>'
KINDS = ("compute_s", "exposed_communication_s", "data_s", "optimizer_s", "other_s")


def report(*folders: Path, **options) -> Report:
    return build(gather(folders, **({"baseline": None, "warmup_steps": None} | options)))


def page(built: Report) -> str:
    text = built.files["index.html"]
    assert isinstance(text, str)
    return text


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text.replace("<!DOCTYPE html>", ""))


def words(element: ElementTree.Element | None) -> str:
    assert element is not None
    return " ".join("".join(element.itertext()).split())


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    """Weak scaling whose step times give 100, 80 and 50 % by FLOPs."""
    folder = tmp_path_factory.mktemp("study") / "weak"
    points = []
    for tp, seconds in ((1, 1.0), (2, 1.25 / 2), (4, 2 / 4)):
        windows = [(1, 9.0), (4, 3.0), *[(5, seconds * factor) for factor in (0.99, 1.0, 1.0, 1.0, 1.01)]]
        profile = dict(zip(KINDS, (0.5, 0.2, 0.1, 0.1, 0.1), strict=True)) if tp != 4 else None
        write_run(
            folder / f"tp={tp}" / "r1", [f"tp={tp}"], windows=windows, profile=profile, valid=[(20, 4.5)]
        )
        points.append({"label": f"tp={tp}", "published_key": tp, "runs": [(f"tp={tp}/r1", "finished", None)]})
    points.append({"label": "tp=8", "published_key": 8, "runs": [("tp=8/r1", "failed", NASTY)]})
    about = {"scaling": "weak", "baseline": "tp=1", "published": "figure5_tp"}
    return write_study(folder, points, title=f"Weak {NASTY}", **about)


@pytest.fixture(scope="module")
def built(study) -> Report:
    return report(study)


def test_the_table_has_the_efficiencies_and_the_paper_s_beside_them(built):
    (table,) = [t for t in parsed(page(built)).iter("table") if t.get("class") == "points"]
    cells = {(tr[0].text or "").strip(): [words(td) for td in tr[1:]] for tr in table.iter("tr")}
    heads = [words(th) for th in next(table.iter("tr"))][1:]
    by_flops = heads.index("efficiencyby FLOPs")
    paper = heads.index("the paperefficiency")
    shown = [cells[f"tp={tp}"][by_flops].split(" %")[0] for tp in (1, 2, 4)]
    assert shown == ["100.0", "80.0", "50.0"]
    assert [cells[f"tp={tp}"][paper] for tp in (1, 2, 4, 8)] == ["100 %", "95 %", "82 %", "77 %"]
    assert cells["tp=8"][by_flops] == "–"


def test_the_headline_names_the_best_point_and_is_not_about_the_baseline(built):
    facts = words(parsed(page(built)).find(".//dl[@class='facts']"))
    assert "best efficiency by FLOPs: tp=280.0 %" in facts
    assert "points, 3 runs" in facts


def test_the_page_is_well_formed_xml_and_html(built):
    class Balanced(HTMLParser):
        def reset(self):
            super().reset()
            self.open = []

        def handle_starttag(self, tag, attributes):
            self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    text = page(built)
    parsed(text)
    parser = Balanced()
    parser.feed(text)
    parser.close()
    assert parser.open == []


def test_no_two_elements_share_an_id_and_every_reference_is_inside_the_page(built):
    text = page(built)
    ids = [element.get("id") for element in parsed(text).iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    references = re.findall(r"(?:url\(|href=\")#([^)\"]+)", text)
    assert references
    assert set(references) <= set(ids)


def test_nothing_is_loaded_from_anywhere(built):
    text = page(built)
    assert not re.search(r"https?:|//cdn|@import|src=|url\((?!#)", text)
    tags = {element.tag for element in parsed(text).iter()}
    assert tags.isdisjoint({"script", "link", "img", "iframe", "object", "{http://www.w3.org/2000/svg}image"})
    links = [a.get("href") for a in parsed(text).iter("a") if a.get("href", "").endswith(("png", "csv"))]
    assert sorted(links) == sorted(name for name in built.files if name != "index.html")


def test_names_and_messages_are_text_whatever_they_contain(built):
    text = page(built)
    assert "<script" not in text
    assert words(parsed(text).find(".//h1")) == f"Weak {NASTY}"
    assert words(parsed(text).find(".//title")) == f"Weak {NASTY}"
    assert NASTY in words(parsed(text).find(".//section[@id='amiss']"))


def test_labels_in_figures_are_drawn_as_they_are_written(tmp_path):
    labels = ["_$\\alpha$ <b>&", "日本語 ✓"]
    for label in labels:
        run = write_run(tmp_path / "runs" / label, windows=[(1, 2.0), (4, 2.0), (5, 1.0), (5, 1.0)])
        assert run.is_dir()
    text = page(report(tmp_path / "runs"))
    for slug in ("throughput", "loss"):
        drawn = words(parsed(text).find(f".//figure[@id='{slug}']"))
        assert all(label in drawn for label in labels), slug


def test_the_same_runs_give_the_same_bytes(study, built):
    assert report(study).files == built.files


def test_figures_follow_the_page_into_the_dark(built):
    text = page(built)
    svgs = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert [name for name in built.files if name.endswith(".png")] == [
        "efficiency.png",
        "throughput.png",
        "time.png",
        "loss.png",
    ]
    assert len(svgs) == 4
    for svg in svgs:
        assert "var(--ink)" in svg
        # Black and white are matplotlib's own colours, which one of the schemes would swallow.
        assert not re.search(r"#000000|#ffffff|#fff\b|: (black|white)\b", svg)


def test_pngs_are_pictures_of_some_size(built):
    for name, content in built.files.items():
        if name.endswith(".png"):
            assert isinstance(content, bytes)
            assert content.startswith(b"\x89PNG\r\n")
            width, height = (int.from_bytes(content[at : at + 4]) for at in (16, 20))
            assert width >= 900, name
            assert height >= 200, name


def test_the_paper_s_bars_are_called_the_paper_s_with_its_machine(built):
    figure = words(parsed(page(built)).find(".//figure[@id='efficiency']"))
    assert "the paper, on DGX-2H servers of 16 V100 32 GB each, fp16" in figure
    assert "Hatched: Figure 5" in figure
    # Our 100, 80 and 50 above the bars, and the paper's for the points that were measured.
    assert re.findall(r"\b(?:100|95|82|80|77|50)\b", " ".join(values(page(built), "efficiency"))) == [
        *("100", "80", "50"),
        *("100", "95", "82"),
    ]


def values(text: str, slug: str) -> list[str]:
    """Numbers above bars: texts of the figure that are no ticks and no names."""
    svg = parsed(text).find(f".//figure[@id='{slug}']//svg")
    assert svg is not None
    axes = svg.find(f".//g[@id='{slug}-axes_1']")
    assert axes is not None
    own = [g for g in axes if (g.get("id") or "").startswith(f"{slug}-text_")]
    return [words(g) for g in own if words(g).isdigit()]


def test_points_that_were_not_profiled_are_named(built):
    caption = words(parsed(page(built)).find(".//figure[@id='time']/figcaption"))
    assert caption.endswith("Not profiled: tp=4, tp=8.")


def test_strong_scaling_shows_speed_up_with_the_paper_s(tmp_path):
    points = []
    for tp, seconds in ((1, 1.0), (2, 0.625)):
        windows = [(1, 9.0), (4, 9.0), *[(5, seconds)] * 5]
        write_run(tmp_path / f"tp={tp}" / "r1", [f"tp={tp}"], windows=windows)
        points.append({"label": f"tp={tp}", "published_key": tp, "runs": [(f"tp={tp}/r1", "finished", None)]})
    about = {"scaling": "strong", "baseline": "tp=1", "published": "table8"}
    text = page(report(write_study(tmp_path, points, **about)))
    figure = words(parsed(text).find(".//figure[@id='speed-up']"))
    assert "1.60 (80 %)" in figure
    assert "Table 8" in figure
    table = words(parsed(text).find(".//table[@class='points']"))
    assert "1.60" in table
    assert "1.64" in table


def test_commands_can_be_copied_into_a_shell(built):
    commands = [words(code) for code in parsed(page(built)).findall(".//section[@id='commands']//code")]
    assert commands[0] == "mlm-train -m study=study"
    assert "mlm-train run_dir=tp=1/r1" in commands


def test_one_run_has_its_throughput_over_steps_and_no_efficiency(tmp_path):
    run = write_run(tmp_path / "a", windows=[(1, 9.0), (4, 3.0), *[(5, 1.0)] * 5], valid=[(30, 4.5)])
    text = page(report(run))
    assert [f.get("id") for f in parsed(text).iter("figure")] == ["throughput", "loss"]
    assert "by FLOPs" not in words(parsed(text).find(".//table[@class='points']"))
    assert "4.5000" in words(parsed(text).find(".//dl[@class='facts']"))
    command = words(parsed(text).find(".//section[@id='commands']//code"))
    assert command == "mlm-train model=gpt2_tiny 'data.path=my text.txt'"


def test_compared_runs_show_only_the_keys_and_facts_that_differ(tmp_path):
    steady = [(1, 9.0), (4, 3.0), *[(5, 1.0)] * 5]
    write_run(tmp_path / "a", ["optim.lr=1e-3"], windows=steady)
    write_run(tmp_path / "b", ["optim.lr=2e-3"], windows=steady, environment={"host": "host-2"})
    root = parsed(page(report(tmp_path / "a", tmp_path / "b")))
    differing = next(t for t in root.iter("table") if words(t[0]) == "keyab")
    assert [words(tr) for tr in differing[1]] == ["optim.lr0.0010.002"]
    environment = words(root.find(".//section[@id='environment']"))
    assert "Different between runs hosthost-1a host-2b The same in all runs" in re.sub(
        r" +", " ", environment
    )
    assert "Runs on different machines: host-1, host-2." in words(root.find(".//aside"))
