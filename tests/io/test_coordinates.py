import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import plain_section

from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.section.coordinates import far_spots, read_coordinates, warn_of_sections_on_top

GRID = np.column_stack([np.arange(12) % 4, np.arange(12) // 4])


def refusal(source, key="spatial") -> str:
    with pytest.raises(InputError) as caught:
        read_coordinates(source, key)
    return str(caught.value)


@pytest.mark.parametrize(
    "convert",
    [
        lambda grid: grid.astype(np.float32),
        lambda grid: grid.astype(np.int64),
        lambda grid: np.asfortranarray(grid.astype(float)),
        lambda grid: pd.DataFrame(grid, columns=["x", "y"], index=[f"spot{i}" for i in range(12)]),
        lambda grid: pd.DataFrame(
            {"x": pd.array(grid[:, 0], dtype="Int64"), "y": grid[:, 1].astype(np.float32)},
            index=[f"spot{i}" for i in range(12)],
        ),
    ],
    ids=["float32", "int64", "fortran", "frame", "nullable frame"],
)
def test_any_table_of_numbers_becomes_float64_rows(adata, source_of, convert) -> None:
    adata.obsm["spatial"] = convert(GRID)
    found = read_coordinates(source_of(adata), "spatial")
    assert (found.dtype, found.flags.c_contiguous) == (np.float64, True)
    np.testing.assert_array_equal(found, GRID)


def test_three_dimensions(adata, source_of) -> None:
    adata.obsm["xyz"] = np.column_stack([GRID, GRID[:, 0] ** 2])
    assert read_coordinates(source_of(adata), "xyz").shape == (12, 3)


def test_the_users_array_is_not_handed_out(adata) -> None:
    read_coordinates(AnnDataSource(adata), "spatial")[:] = -1
    np.testing.assert_array_equal(adata.obsm["spatial"], GRID)


def test_a_missing_key_lists_the_others(adata, source_of) -> None:
    adata.obsm["X_spatial"] = adata.obsm["spatial"]
    source = source_of(adata)
    assert refusal(source, "xy") == (
        f"Expected the coordinates of the spots in obsm['xy'] of {source.name}, found keys: "
        "'X_spatial', 'spatial'. Name yours with `spatial_key`. They may be those of `spatial_key='spatial'`."
    )


@pytest.mark.parametrize(
    "columns", [("x", "y"), ("imagecol", "imagerow"), ("pxl_col_in_fullres", "pxl_row_in_fullres"), ("max_x", "max_y")]
)
@pytest.mark.parametrize("key", ["spatial", "imagecol"])
def test_a_missing_key_names_the_columns_that_are_there(adata, source_of, key, columns) -> None:
    del adata.obsm["spatial"]
    for column in (*columns, "depth"):
        adata.obs[column] = 1.0
    expected = f"Name yours with `spatial_key`. They may be those of `spatial_key={','.join(columns)!r}`, two columns "
    assert expected in refusal(source_of(adata), key)
    adata.obs = adata.obs[["depth"]]
    assert refusal(source_of(adata), key).endswith(" They may be two columns of obs: `spatial_key='x,y'`, for example.")


@pytest.mark.parametrize("key", ["X_umap", "X_tsne", "umap_of_all"])
def test_an_embedding_is_no_map_of_the_tissue(adata, source_of, key) -> None:
    adata.obsm[key] = adata.obsm["spatial"]
    with pytest.warns(InputWarning, match=rf"^obsm\['{key}'\] has the name of an embedding of the expression, and is "):
        read_coordinates(source_of(adata), key)


@pytest.mark.parametrize("key", ["x,y", "x, y", " x ,y"])
def test_columns_of_obs_with_blanks_or_without(adata, source_of, key) -> None:
    grid = adata.obsm.pop("spatial")
    adata.obs["x"], adata.obs["y"] = grid.T
    np.testing.assert_array_equal(read_coordinates(source_of(adata), key), grid)
    adata.obs[" y"] = -grid[:, 1]  # a column that has the blank in its name
    assert (read_coordinates(AnnDataSource(adata), "x, y")[:, 1] <= 0).all()


def test_a_list_of_columns_is_answered_with_how_to_name_them(adata) -> None:
    with pytest.raises(InputError, match=r"^Expected `spatial_key` to be text, found \['x', 'y'\]\. .* 'x,y'\.$"):
        read_coordinates(AnnDataSource(adata), ["x", "y"])


@pytest.mark.parametrize("n_columns", [0, 1, 4])
def test_too_few_or_many_columns(adata, source_of, n_columns) -> None:
    adata.obsm["spatial"] = np.zeros((12, n_columns))
    assert refusal(source_of(adata)) == (
        "Expected obsm['spatial'] to have 2 or 3 columns (x, y and perhaps z), "
        f"found {n_columns}. Name the coordinates with `spatial_key`."
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (sp.csr_matrix(GRID), "a sparse matrix. Store it as a plain array of numbers."),
        (GRID.astype("U2"), "values of type object. Store it as a plain array of numbers."),
        (GRID > 1, "values of type bool. Store it as a plain array of numbers."),
        (GRID * 1j, "values of type complex128. Store it as a plain array of numbers."),
        (
            np.zeros((12, 2, 2)),
            "3 dimensions. Store it with one row per spot and one column per axis.",
        ),
        (
            pd.DataFrame({"x": GRID[:, 0], "y": "1"}, index=[f"spot{i}" for i in range(12)]),
            (
                f"column 'y' of type {pd.Series(['1']).dtype} (first value: '1'). Turn it into numbers, for example "
                "with `.astype(float)`."
            ),
        ),
    ],
    ids=["sparse", "text", "bool", "complex", "3-D array", "text in a frame"],
)
def test_what_is_no_table_of_numbers(adata, source_of, value, said) -> None:
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":
        value = value.astype(object)
    adata.obsm["spatial"] = value
    assert refusal(source_of(adata)) == (f"Expected obsm['spatial'] to be a table of numbers, found {said}")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_lost_coordinates_are_counted(adata, source_of, bad) -> None:
    adata.obsm["spatial"][[4, 7], [0, 1]] = bad
    assert refusal(source_of(adata)) == (
        "Expected obsm['spatial'] to hold finite coordinates, found 2 of 12 spots with NaN or "
        "infinity (first: 'spot4'). Remove these spots first."
    )


def warning(source) -> list[str]:
    with pytest.warns(InputWarning) as caught:
        read_coordinates(source, "spatial")
    return [str(one.message) for one in caught if one.category is InputWarning]


def test_spots_in_one_place_are_counted(adata, source_of) -> None:
    adata.obsm["spatial"][[5, 6]] = adata.obsm["spatial"][0]
    adata.obsm["spatial"][5] *= -1.0  # minus zero is zero
    (message,) = warning(source_of(adata))
    assert message == (
        "2 of 12 spots have the same coordinates in obsm['spatial'] as an earlier spot (first: 'spot5'). All of them "
        "are used. If the file holds several sections, name the column that tells them apart with `sample_key`."
    )


LINE = "All spots of obsm['spatial'] lie on one line, so domains will be stretches of that line. Check `spatial_key`."


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e120])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_spots_on_a_line_in_any_unit(adata, source_of, scale, offset) -> None:
    adata.obsm["spatial"] = (np.outer(np.arange(12), [0.3, 0.7]) + offset) * scale
    assert warning(source_of(adata)) == [LINE]


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e120])
def test_spots_far_from_their_section_are_told(scale) -> None:
    adata = plain_section(n=60)
    source = AnnDataSource(adata)
    read_coordinates(source, "spatial")  # without a warning
    assert not far_spots(adata.obsm["spatial"] * scale).any()
    adata.obsm["spatial"][[7, 30]] = [[9.0, 0.5], [-1e6, 0.5]]
    assert np.flatnonzero(far_spots(adata.obsm["spatial"] * scale)).tolist() == [30]
    assert np.flatnonzero(far_spots(np.c_[adata.obsm["spatial"], np.zeros(60)])).tolist() == [30]
    assert not far_spots(adata.obsm["spatial"][25:35]).any()  # too few to say where the section is
    (said,) = warning(source)
    assert said.startswith(
        "1 of 60 spots lies more than 10 times the width of the section away from it in obsm['spatial'] (first: '30'). "
    )
    samples = pd.Categorical(np.repeat(["a", "b"], 30))
    adata.obsm["spatial"][30:] += 1e3  # sections may lie anywhere
    with pytest.warns(InputWarning, match=r"^1 of 60 spots lies more than 10 times the width of their section away"):
        read_coordinates(source, "spatial", samples=samples)


def test_all_spots_in_one_place_are_on_no_line(adata, source_of) -> None:
    adata.obsm["spatial"][:] = 3.0
    said = "All spots of obsm['spatial'] lie at one place, which says nothing. Check `spatial_key`."
    assert said in warning(source_of(adata))


def test_spots_of_two_sections_may_share_a_place_and_those_of_one_are_told_without_advice(adata, source_of) -> None:
    adata.obsm["spatial"][6:] = adata.obsm["spatial"][:6]
    samples = pd.Categorical(["a"] * 6 + ["b"] * 6)
    read_coordinates(source_of(adata), "spatial", samples=samples)
    adata.obsm["spatial"][8] = adata.obsm["spatial"][7]
    with pytest.warns(InputWarning) as caught:
        read_coordinates(source_of(adata), "spatial", samples=samples)
    (message,) = [str(one.message) for one in caught if one.category is InputWarning]
    assert message == (
        "1 of 12 spots has the same coordinates in obsm['spatial'] as an earlier spot of their section (first: "
        "'spot8'). All of them are used."
    )


@pytest.mark.parametrize("key", ["spatial_fov", "global"])  # of squidpy and of SpatialData
def test_places_within_fields_of_view_are_told_from_those_in_the_section(adata, source_of, key) -> None:
    adata.obsm[key] = adata.obsm["spatial"] + 5.0
    (message,) = warning(source_of(adata))
    assert message.endswith(f"For those in the whole section give `spatial_key='{key}'`.")
    read_coordinates(source_of(adata), key)
    read_coordinates(source_of(adata), "spatial", samples=pd.Categorical(["a"] * 6 + ["b"] * 6))


def test_a_narrow_strip_and_a_flat_third_axis_are_areas(adata, source_of) -> None:
    adata.obsm["spatial"] = np.column_stack([GRID * [1.0, 1e-4], np.zeros(12)])
    read_coordinates(source_of(adata), "spatial")


def test_coordinates_that_are_too_near_each_other_are_refused(adata):
    adata.obsm["spatial"] = adata.obsm["spatial"] * 1e-160
    with pytest.raises(InputError, match=r"coordinates in a usual unit, found numbers of up to .*, .* apart"):
        read_coordinates(AnnDataSource(adata), "spatial")


def test_a_table_with_a_repeated_column_of_texts_is_refused(adata) -> None:
    adata.obsm["spatial"] = pd.DataFrame([["a", "b"]] * 12, index=adata.obs_names, columns=["x", "x"])
    kind = adata.obsm["spatial"].dtypes.iloc[0]  # str from pandas 3 on, object before
    assert f"found column 'x' of type {kind} (first value: 'a')" in refusal(AnnDataSource(adata))


@pytest.mark.parametrize("key", ["library_id", "Sample", "batch", "SliceID", "region", "orig.ident", "list_ID"])
def test_sections_that_lie_over_each_other_are_told_where_a_column_names_them(recwarn, key) -> None:
    adata = plain_section(n=90)
    xy = adata.obsm["spatial"]
    adata.obs["cell_type"] = np.resize(["x", "y"], 90)  # a mixture, but none of sections
    adata.obs["donor"] = "one"
    adata.obs["fragment"] = np.where(xy[:, 0] < 0.5, "left", "right")
    source = AnnDataSource(adata)
    for kept in (None, np.arange(90) >= 10):
        warn_of_sections_on_top(source, xy if kept is None else xy[kept], kept)
    for values in ("one", np.where(xy[:, 0] < 0.5, "left", "right"), np.where(np.arange(90) < 3, "few", "many")):
        adata.obs[key] = values
        adata.uns["spatialdata_attrs"] = {"region_key": "region"}
        warn_of_sections_on_top(source, xy, None)
    assert not recwarn.list
    adata.obs[key] = np.repeat(["one", "two", "three"], 30)
    with pytest.warns(InputWarning, match=rf"by obs\['{key}'\], which names 3 groups of them: .* `sample_key='{key}'`"):
        warn_of_sections_on_top(source, xy, None)
    with pytest.warns(InputWarning, match=r"which names 2 groups of them"):
        warn_of_sections_on_top(source, xy[30:], np.arange(90) >= 30)
    adata.obs[key] = np.where(np.arange(90) < 3, "few", np.resize(["one", "two"], 90))
    adata.obs.loc[adata.obs_names[5:9], key] = None
    with pytest.warns(InputWarning, match=r"which names 2 groups of them"):
        warn_of_sections_on_top(source, xy, None)
    adata.obs[key] = np.repeat(["one", "two", "three"], 30)
    with pytest.warns(InputWarning, match=r"groups of them: 100% have the nearest spot in another group"):
        warn_of_sections_on_top(source, np.tile(xy[:30], (3, 1)), None)


def test_an_axis_along_which_most_spots_are_equal_puts_none_far_away():
    places = np.random.default_rng(0).random((100, 2))
    height = np.where(np.arange(100) < 4, 1e-3, 0.0)
    assert not far_spots(np.column_stack([places, height])).any()


def test_spots_on_a_line_are_told_where_one_lies_far_off():
    adata = plain_section(n=40)
    adata.obsm["spatial"] = np.column_stack([np.arange(40.0), np.zeros(40)])
    adata.obsm["spatial"][7] = 1e4
    with pytest.warns(InputWarning) as caught:
        read_coordinates(AnnDataSource(adata), "spatial")
    told = [str(one.message) for one in caught]
    assert any(text.startswith("1 of 40 spots lies more than 10 times the width") for text in told)
    assert any(" lie on one line, so " in text for text in told)


def test_sections_on_top_are_told_by_the_column_of_the_spots_that_were_kept():
    adata = plain_section(n=90)
    adata.obs["batch"] = np.where(np.arange(90) < 45, "left out", np.resize(["one", "two"], 90))
    kept = np.arange(90) >= 45
    with pytest.warns(InputWarning, match=r"by obs\['batch'\], which names 2 groups of them"):
        warn_of_sections_on_top(AnnDataSource(adata), adata.obsm["spatial"][kept], kept)


@pytest.mark.parametrize(("n", "found"), [(19, 0), (20, 1)])
def test_twenty_spots_are_enough_to_say_that_one_of_them_is_far(n, found) -> None:
    places = np.column_stack([np.arange(n) % 4, np.arange(n) // 4]).astype(float)
    places[-1] = 1e6
    assert far_spots(places).sum() == found
