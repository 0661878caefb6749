"""Every bound of `fillin play` in one place: what is larger gets an answer that says so, not a computation."""

MEGABYTE = 1_000_000

BODY = 2 * MEGABYTE  # of any request that is no upload
UPLOAD = 8 * MEGABYTE  # of a picture or a table
SENDING = 30.0  # seconds that a body may take to come; headers may take twice as long
WAITING = 32  # requests that may wait for their turn in one lane
QUICK, SLOW = 10.0, 60.0  # seconds from the arrival of a request to its answer, in each lane

LARGEST = 1e12  # of any coordinate
POINTS = 200  # known points of a curve
PLACES = 257  # where a curve is told
SAMPLES = 8  # whole functions
SHIFT = 100.0  # units by which everything may be moved

SIDE = 64  # pixels along the longer side of a picture
DIGITS = 32  # the same for the network that knows digits, whose pixels all look at one another (and in images.js)
PIXELS = 1 << 25  # of a picture that is dropped, before it is made smaller
SCALES = (1, 2, 4)  # cells of the output along a pixel
PICTURES = 4  # samples of a picture

ROWS, COLUMNS, CELLS = 1_000, 30, 10_000  # of a table
TABLES = 4  # tables that are remembered, so that their cells can be asked about

SCATTERED = 20_000  # points in the plane
PAIRS = 20_000_000  # pairs inside the window up to which the kernel is run
DENSE = 1_200  # points up to which a window as a bias is run: it stores every pair of every head, several times
FUSED = 4_000  # points up to which torch's own attention is run
