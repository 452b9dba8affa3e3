# frozen_string_literal: true

require_relative "helper"
require "fileutils"
require "io/nonblock"
require "pathname"
ReactorTest.optional "pty"

# Files and blocking descriptors: the bytes and errors of plain Ruby, while other fibers run.
class TestFiles < ReactorTest
  # Not in Dir.tmpdir, which may be in memory.
  DIRECTORY = File.join(ROOT, "tmp", "files.#{Process.pid}")
  SIZE = (3 << 20) + 123
  BYTES = Random.new(4).bytes(SIZE).freeze

  def setup
    super
    FileUtils.mkdir_p(DIRECTORY)
    @path = File.join(DIRECTORY, name)
    File.open(@path, "wb") { |file| file.write(BYTES) && file.fsync }
  end

  def teardown
    super
    FileUtils.rm_rf(DIRECTORY)
  end

  # Drops the file from the page cache, as far as the system allows.
  def cold(path = @path) = File.open(path) { |file| file.advise(:dontneed) }

  # Runs the block when the file is in the page cache.
  def warm(path = @path) = File.binread(path) && yield

  # The number of operations that ran on the pool or in the driver.
  def pool_jobs = Fiber.scheduler.stats.values_at(:pool_jobs, :carried).compact.sum

  def carried = Fiber.scheduler.stats.fetch(:carried, 0)

  READERS = {
    read: ->(path) { File.open(path, "rb", &:read) },
    in_parts: ->(path) { File.open(path, "rb") { |f| parts = []; while (part = f.read(100_001)) do parts << part end; parts.join } },
    readpartial: ->(path) { File.open(path, "rb") { |f| f.readpartial(1 << 20) } },
    to_the_end: ->(path) { File.open(path, "rb") { |f| f.sysread(SIZE); [f.read, f.read(1), f.eof?, f.pos] } },
    pread: ->(path) { File.open(path, "rb") { |f| [f.pread(1 << 20, 12_345), f.pos, f.pread(10, SIZE - 4), f.pread(0, SIZE)] } },
    ungetc: ->(path) { File.open(path, "rb") { |f| f.ungetbyte(7); [f.read(9), f.pos] } },
    seeking: ->(path) { File.open(path, "rb") { |f| f.seek(-5, IO::SEEK_END); [f.read, f.rewind, f.read(4)] } }
  }.freeze

  def test_cold_and_warm_reads_are_those_of_plain_ruby
    READERS.each do |way, reader|
      plain = reader.call(@path)
      assert plain == in_fiber { reader.call(@path) }, "#{way}, warm"
      cold
      assert plain == in_fiber { reader.call(@path) }, "#{way}, cold"
    end
  end

  def test_reads_of_uncached_pages_run_on_the_pool
    needs_linux "the page cache is emptied"
    needs_page_cache_state
    assert(eventually { cold; jobs_to_read.positive? })
    warm { assert_equal 0, jobs_to_read }
  end

  # Thread stacks of 4 GiB in a smaller address space: no thread can be started.
  NO_THREADS = { "RUST_MIN_STACK" => (4 << 30).to_s, "RUBY_THREAD_MACHINE_STACK_SIZE" => (4 << 30).to_s }.freeze
  WITHOUT_THREADS = <<~'RUBY'
    path, = ARGV
    bytes = File.binread(path)
    scheduler = Fiber.set_scheduler(Reactor::Scheduler.new(policy: :always))
    Process.setrlimit(:AS, File.read("/proc/self/status")[/VmSize:\s+(\d+)/, 1].to_i * 1024 + (1 << 30), Process.getrlimit(:AS).last)
    abort "a thread was started" if (Thread.new { nil } rescue nil)
    File.open(path) { |file| file.advise(:dontneed) }
    Fiber.schedule do
      p File.binread(path) == bytes
      p File.open("#{path}.2", "wb") { |file| [file.pwrite(bytes, 0) == bytes.size, file.fsync] }
      p IO.copy_stream(path, "#{path}.3") && File.binread("#{path}.3") == bytes
      p Reactor.offload { Thread.current.equal?(Thread.main) }
    end
    scheduler.run
    p scheduler.stats.values_at(:pool_started, :offload_threads).compact.sum
  RUBY

  def test_without_threads_files_are_read_and_written_inline
    needs_linux "the address space is limited"
    skip "Ruby 3.3 itself hangs after a thread that could not be started" if RUBY_VERSION < "3.4"
    assert_equal "true\n[true, 0]\ntrue\ntrue\n0\n", child_says(WITHOUT_THREADS, @path, env: NO_THREADS)
  end

  # The number of reads that ran on the pool while a fiber read the file in small parts.
  def jobs_to_read = in_fiber { assert_bytes(BYTES, READERS[:in_parts].call(@path)); pool_jobs }

  def needs_page_cache_state
    type = IO.popen(["stat", "-f", "-c", "%T", DIRECTORY], &:read).chomp
    skip "a file system of type #{type} has no page cache that can be queried and emptied" unless type.match?(/ext|xfs|btrfs/)
  end

  # Starts a fiber that is always ready.
  def start_ready_fiber = Fiber.schedule { sleep(0) while true }

  # A read of 1 MiB runs on a worker, into the fiber's own string, if another fiber is ready.
  def test_large_reads_run_on_the_pool_if_other_fibers_are_ready
    warm { in_fiber { read_large } }
  end

  def read_large
    file = track(File.open(@path, "rb"))
    sleep 0 # until then the fiber that called Fiber.schedule is ready
    before = pool_jobs
    assert_bytes BYTES[7, 1 << 20], file.pread(1 << 20, 7)
    assert_equal before, pool_jobs, "no other fiber was ready"
    other = start_ready_fiber
    got = file.pread(1 << 20, 7)
    assert_equal before + 1, pool_jobs
    assert_bytes BYTES[7, 1 << 20], got
    assert_equal 0, file.pos
    file.seek(SIZE - (600 << 10))
    assert_bytes BYTES[-(600 << 10)..], file.readpartial(2 << 20)
    assert_equal [SIZE, nil], [file.pos, file.read(1)]
    file.seek(SIZE - 9)
    before = pool_jobs
    assert_bytes BYTES[-9..], file.readpartial(2 << 20)
    assert_equal before, pool_jobs, "the buffer is large, the rest of the file is small"
    other.kill
  end

  # Other fibers may free an IO::Buffer, or the buffer of a slice, while a worker writes to it.
  def test_reads_into_an_io_buffer_do_not_run_on_the_pool
    warm { in_fiber { read_into_buffers } }
  end

  def read_into_buffers
    file = track(File.open(@path, "rb"))
    whole = IO::Buffer.new(2 << 20)
    other = start_ready_fiber
    before = pool_jobs
    [whole, whole.slice(4096, 1 << 20)].each do |buffer|
      file.rewind
      count = buffer.locked { buffer.read(file, 1 << 20) }
      assert_operator count, :>=, 1 << 20
      assert_bytes BYTES[0, count], buffer.get_string(0, count)
    end
    assert_equal before, pool_jobs
    whole.free
    other.kill
  end

  # As in plain Ruby, each read(2) takes the next bytes of the file.
  def test_concurrent_reads_of_one_file_share_its_offset
    [64 << 10, 300 << 10, 700 << 10].each do |size|
      cold
      blocks = []
      in_fiber do
        file = track(File.open(@path, "rb"))
        (SIZE / size + 2).times { Fiber.schedule { blocks << file.sysread(size) rescue EOFError } }
      end
      expected = (0...SIZE).step(size).map { |from| BYTES[from, size] }
      assert_equal expected.map(&:hash).sort, blocks.map(&:hash).sort
    end
  end

  # A worker must not write to memory that has been reused. A killed fiber waits for its worker, and the end of a scheduler waits
  # for the workers of fibers that never continue.
  def test_no_worker_writes_to_a_buffer_after_kill_or_shutdown
    out = child_says(<<~RUBY, @path)
      file = File.open(ARGV[0], "rb")
      8.times do |round|
        file.advise(:dontneed) if round.even?
        Thread.new do
          buffers = Array.new(20) { "." * (1 << 20) }
          scheduler = Reactor::Scheduler.new
          Fiber.set_scheduler(scheduler)
          Fiber.schedule { sleep(0) while true }
          fibers = buffers.map.with_index { |buffer, i| Fiber.schedule { file.pread(1 << 20, i << 16, buffer) } }
          fibers.sample(5).each(&:kill)
          scheduler.shutdown
          left = fibers.count(&:alive?)
          before = buffers.map(&:hash)
          sleep 0.002
          p [:late, left] unless before == buffers.map(&:hash)
        end.join
      end
      p :done
    RUBY
    assert_equal ":done\n", out
  end

  # A file system may write the data only in close(2), which is slow then.
  def test_a_file_with_much_written_data_is_closed_on_a_worker
    target = File.join(DIRECTORY, "target")
    large = BYTES[0, 2 << 20]
    written = -> { File.open(target, "wb").tap { |file| file.write(large) } }
    in_fiber do |scheduler|
      handed = lambda do |file|
        before = scheduler.stats[:offload_on_worker]
        assert_equal [nil, nil, true], [file.close, file.close, file.closed?]
        scheduler.stats[:offload_on_worker] - before
      end
      assert_equal 1, handed.(written.call)
      assert_equal 0, handed.(File.open(target, "rb")), "only read"
      assert_equal 0, handed.(File.open(target, "wb")), "small"
      file = written.call
      assert_raises(Timeout::Error) { Timeout.timeout(0.01) { begin sleep ensure file.close end } }
      assert_predicate file, :closed?
      file = written.call
      seen = nil
      closing = Fiber.schedule { file.close rescue seen = $!.message }
      interrupted = closing.alive? # false if the worker was faster
      closing.raise(IOError, "interrupted") if interrupted
      assert eventually { !closing.alive? }
      assert_equal [("interrupted" if interrupted), true], [seen, file.closed?]
    end
    assert_equal large, File.binread(target)
  end

  def test_copy_stream_takes_lengths_and_offsets_as_plain_ruby
    numbers = [[], [-1], [5, -1], [3.7], [0], [7, 100], [5, SIZE - 2], ["x"], [2**70], [nil, 2**70], [nil, "x"]]
    copied = lambda do |given|
      reader, writer = pipe
      count = File.open(__FILE__, "rb") { |file| [(IO.copy_stream(file, writer, *given) rescue [$!.class, $!.message]), file.pos] }
      writer.close
      [count, reader.read]
    end
    numbers.each { |given| assert_equal copied.(given), in_fiber { copied.(given) }, given.inspect }
  end

  def test_copy_stream_begins_with_what_the_file_has_buffered_as_plain_ruby
    path = File.join(DIRECTORY, "buffered")
    before = {
      "a character" => ->(file) { file.seek(3); file.ungetc("日") },
      "more than a buffer" => ->(file) { file.ungetbyte("x" * 9_000) },
      "after a seek" => ->(file) { file.read(5); file.seek(2, :CUR); file.ungetc("é") },
      "written" => ->(file) { file.write("new"); file.seek(0); file.write("NEW") }
    }
    copied = lambda do |prepare, given|
      File.binwrite(path, "0123456789\n" * 30_000)
      reader, writer = pipe
      File.open(path, "r+b") do |file|
        prepare.(file)
        bytes = nil
        receiver = Thread.new { bytes = reader.read }
        count = (IO.copy_stream(file, writer, *given) rescue $!.class)
        writer.close
        receiver.join
        [count, bytes, file.pos, file.read]
      end
    end
    before.to_a.product([[], [2], [280_000], [280_000, 7]]) do |(name, prepare), given|
      assert_equal copied.(prepare, given).hash, in_fiber { copied.(prepare, given) }.hash, "#{name}, #{given}"
    end
  end

  # In a child with a limit, because a copy that does not end fills the disk; so does Ruby's own without copy_file_range(2).
  def test_copy_stream_of_a_file_onto_its_own_end_ends_as_in_plain_ruby
    code = <<~RUBY
      Process.setrlimit(:FSIZE, 32 << 20)
      trap("XFSZ", "IGNORE")
      copy = lambda do
        p([10, (8 << 20) + 10].product([nil, 4]).map do |size, offset|
          File.binwrite(ARGV[0], "x" * size)
          File.open(ARGV[0], "r+b") do |target|
            target.seek(0, :END)
            [(File.open(ARGV[0], "rb") { |source| IO.copy_stream(source, target, nil, offset) } rescue $!.class), target.size]
          end
        end)
      end
      copy.call
      Fiber.set_scheduler(Reactor::Scheduler.new)
      Fiber.schedule(&copy)
    RUBY
    lines = child_says(code, File.join(DIRECTORY, "doubled")).lines
    assert_equal 2, lines.size
    assert_equal lines.first, lines.last
  end

  def test_copy_stream_from_what_cannot_be_read_leaves_the_target_as_it_is
    target = File.join(DIRECTORY, "kept")
    File.write(target, "kept")
    in_fiber do
      File.open(File.join(DIRECTORY, "unreadable"), "w") do |source|
        [[target], [track(File.open(target, "a")), 0]].each { |given| assert_raises(IOError) { IO.copy_stream(source, *given) } }
      end
    end
    assert_equal "kept", File.read(target)
  end

  # They run on workers even after cheap writes, because a kernel with much unwritten data blocks the writer.
  def test_large_writes_run_on_workers
    skip "Ruby 4.0 and later: there is a hook, which is not counted" unless RUBY_VERSION < "4.0"

    in_fiber do |scheduler|
      File.open(File.join(DIRECTORY, "target"), "wb") do |file|
        before = scheduler.stats[:offload_on_worker]
        60.times { |piece| assert_equal 100_000, file.pwrite(BYTES[0, 100_000], piece * 100_000) }
        assert_operator scheduler.stats[:offload_on_worker] - before, :>=, 60
      end
    end
    assert_equal BYTES[0, 100_000] * 60, File.binread(File.join(DIRECTORY, "target"))
  end

  # Either of them waits for the write in progress.
  def test_a_fiber_that_is_killed_or_interrupted_in_a_write_writes_nothing_later
    target = File.join(DIRECTORY, "killed")
    in_fiber do
      %i[kill raise].product([*0...8]).each do |way, round|
        file = track(File.open(target, "wb"))
        file.sync = true
        fiber = Fiber.schedule { file.write(BYTES) rescue IndexError }
        sleep round * 0.0001
        way == :kill ? fiber.kill : fiber.raise(IndexError) if fiber.alive?
        assert eventually { !fiber.alive? }
        size = File.size(target)
        sleep 0.001
        assert_equal [size, size], [File.size(target), file.pos], way.to_s
        file.close
        assert_bytes BYTES[0, size], File.binread(target)
      end
    end
  end

  # A worker must not read or write a reused descriptor number for the file that had it before.
  def test_close_waits_for_the_worker_that_uses_the_descriptor
    innocent = File.join(DIRECTORY, "innocent")
    %i[fiber thread killed_thread fiber_of_another_scheduler].each do |closer|
      6.times do
        outcome = nil
        cold
        in_fiber do
          file = File.open(@path, "r+b")
          file.sync = true
          Fiber.schedule { outcome = outcome { file.write(BYTES); file.sysread(10) } }
          close_by(closer, file)
          File.open(innocent, "w+b") do |other|
            sleep 0.001
            assert_equal 0, other.size
          end
        end
        assert_includes [[:raised, IOError], [:raised, EOFError]], outcome
      end
    end
  end

  def close_by(closer, file)
    case closer
    when :fiber then file.close
    when :thread then Thread.new { file.close }.join
    when :killed_thread
      thread = Thread.new { file.close }
      sleep 0
      thread.kill.join
      file.close unless file.closed?
    when :fiber_of_another_scheduler
      thread = Thread.new do
        Fiber.set_scheduler(Reactor::Scheduler.new(backend: BACKEND))
        Fiber.schedule { file.close }
      end
      thread.join
    end
  end

  # In Windows' text mode a line is shorter than in the file, and Ctrl-Z ends the file: no read may continue after a short count.
  CUT = {
    lines: %i[readpartial sysread].product([1, 2, 5, 100]), ctrl_z: [[:readpartial, 3], [:sysread, 2], [:sysread, 100]],
    long: [[:readpartial, 300_000]]
  }.freeze
  TEXTS = { lines: "a\r\nb\r\nc\r\nd\r\ne\r\n", ctrl_z: "ab\x1acd\r\nef\r\n", long: "line of text\r\n" * 40_000 }.freeze

  def test_reads_in_text_mode_are_cut_as_in_plain_ruby
    CUT.each do |text, calls|
      File.binwrite(@path, TEXTS.fetch(text))
      calls.each do |call|
        assert_equal run_plain { parts(call) }, in_fiber { parts(call) }, "#{text}: #{call}"
      end
    end
  end

  # The result of reading to the end by one call, and the position afterwards.
  def parts(call)
    File.open(@path, "r") do |file|
      parts = []
      loop { parts << [file.public_send(*call), file.sysseek(0, IO::SEEK_CUR)] }
    rescue EOFError
      parts
    end
  end

  def test_errors_are_those_of_plain_ruby
    tries = {
      enoent: -> { File.read("#{@path}.none") },
      eisdir: -> { File.read(DIRECTORY) },
      unwritable: -> { File.open(@path) { |file| file.write("x") } },
      eof: -> { File.open(@path) { |file| file.pread(1, SIZE) } },
      espipe: -> { pipe.first.pread(1, 0) },
      closed: -> { File.open(@path).tap(&:close).fsync },
      fsync: -> { pipe.last.fsync },
      fsync_of_a_device: -> { File.open(File::NULL, &:fsync) },
      flock: -> { File.open(@path) { |file| file.flock("x") } },
      missing: -> { IO.copy_stream("#{@path}.none", "#{@path}.target") }
    }
    if linux?
      tries[:enospc] = -> { File.open("/dev/full", "w") { |file| file.sync = true; file.write("x") } }
      tries[:enospc_at_close] = -> { File.write("/dev/full", "x") }
      # Address 0 of this process cannot be read: a real EIO on the pool.
      tries[:eio] = -> { File.open("/proc/self/mem") { |file| file.pread(1, 0) } }
      tries[:eio_here] = -> { File.open("/proc/self/mem") { |file| file.sysread(1) } }
    end
    tries.each do |what, try|
      plain = told(&try)
      assert_equal plain, in_fiber { told(&try) }, what
      assert_instance_of Array, plain, "#{what} is no error in plain Ruby"
    end
  end

  def test_fsync_and_fdatasync
    warm do # otherwise the driver would read as well
      in_fiber do
        File.open(@path, "r+b") do |file|
          file.write("new")
          assert_equal 0, file.fsync
          assert_equal "new", File.binread(@path, 3)
          assert_equal 0, file.fdatasync
        end
        assert_equal BACKEND == :uring ? 2 : 0, carried
      end
    end
  end

  def test_fsync_and_fdatasync_keep_what_lies_in_the_read_buffer
    trial = lambda do
      %i[fsync fdatasync].product(%w[r r+], [->(file) { file.getc }, ->(file) { file.ungetbyte("YZ") }]).map do |sync, mode, before|
        File.write(@path, "0123456789\n")
        File.open(@path, mode) do |file|
          before.(file)
          [file.public_send(sync), assert_raises(IOError) { file.sysread(1) }.message, file.gets, file.pos]
        end
      end
    end
    plain = trial.call
    assert_equal [0, "sysread for buffered IO", "YZ0123456789\n", 11], plain[1]
    assert_equal plain, in_fiber { trial.call }
  end

  def test_a_killed_fiber_waits_for_its_fsync
    in_fiber do
      file = track(File.open(@path, "r+b"))
      file.write(BYTES)
      fiber = Fiber.schedule { file.fsync }
      fiber.kill if fiber.alive?
      assert eventually { !fiber.alive? }
      file.close
    end
    assert_bytes BYTES, File.binread(@path)
  end

  def test_uring_reads_uncached_pages_in_the_driver
    needs_linux "the page cache is emptied"
    needs_page_cache_state
    in_fiber do
      once = lambda do
        cold
        File.open(@path, "rb") do |file|
          assert_bytes BYTES[5_000, 1_000], file.pread(1_000, 5_000)
          assert_bytes BYTES[0, 30_000], file.sysread(30_000)
          assert_equal 30_000, file.pos
        end
        carried.positive?
      end
      BACKEND == :uring ? assert(eventually(&once)) : refute(Array.new(3) { once.call }.any?)
    end
  end

  # The driver's bytes are thrown away, and the file may be slow (FUSE), or give them only once.
  def test_uring_reads_no_file_for_which_the_kernel_promises_nothing
    needs_linux "proc(5)"
    in_fiber do
      assert_equal 60, File.open("/proc/self/status") { |file| file.sysread(60) }.bytesize
      assert_equal 0, carried
    end
  end

  # Workers and the driver read at an explicit offset.
  def test_an_interrupted_read_does_not_move_the_offset
    random = Random.new(7)
    %i[raise kill close timeout].product([*1..6]).each do |way, round|
      cold if round.odd?
      in_fiber do
        file = track(File.open(@path, "rb"))
        log = []
        fiber = Fiber.schedule do
          log << Timeout.timeout(way == :timeout ? random.rand * 0.002 : nil) { file.sysread(SIZE).bytesize }
        rescue IOError, RuntimeError, Timeout::Error => e
          log << e.class
        end
        case way
        when :raise then fiber.raise("enough") if fiber.alive?
        when :kill then fiber.kill if fiber.alive?
        when :close then file.close
        end
        assert eventually { !fiber.alive? }
        assert_includes [[], [RuntimeError], [IOError], [Timeout::Error], [SIZE]], log
        assert_equal log == [SIZE] ? SIZE : 0, file.pos, way.to_s unless way == :close
      end
    end
  end

  def test_flock_parks_only_its_fiber
    log = []
    in_fiber do |scheduler|
      first, second, third = Array.new(3) { track(File.open(@path)) }
      assert_equal 0, first.flock(File::LOCK_EX)
      assert_equal false, second.flock(File::LOCK_EX | File::LOCK_NB)
      Fiber.schedule { log << [:second, second.flock(File::LOCK_EX)]; second.flock(File::LOCK_UN) }
      assert_equal 0, scheduler.stats[:timers]
      Fiber.schedule do
        Timeout.timeout(0.01) { third.flock(File::LOCK_SH) }
      rescue Timeout::Error
        log << :interrupted
      end
      assert eventually { log.any? }
      assert_equal [:interrupted], log
      log << :released
      first.flock(File::LOCK_UN)
      assert eventually { log.size == 3 }
    end
    assert_equal [:interrupted, :released, [:second, 0]], log
  end

  def test_fibers_that_wait_for_ever_in_flock_keep_no_worker_from_others
    run_plain do
      Fiber.set_scheduler(scheduler = Reactor::Scheduler.new(workers: 1))
      Fiber.schedule do
        holder, *waiters = Array.new(9) { track(File.open(@path)) }
        holder.flock(File::LOCK_EX)
        waiting = waiters.map { |file| Fiber.schedule { assert_raises(KeyError) { file.flock(File::LOCK_EX) } } }
        until_parked(scheduler, waiters.size)
        assert_equal 1, scheduler.offload { 1 }
        waiting.each { |fiber| fiber.raise(KeyError) }
        assert eventually { waiting.none?(&:alive?) }
      end
      scheduler.run
    end
  end

  # The holder releases the lock, so the waiting thread may get it just before the fiber is interrupted.
  def test_a_fiber_that_is_interrupted_in_flock_never_has_the_lock
    %i[raise kill timeout].product([*0...8]).each do |how, round|
      run_scheduler do |scheduler|
        holder, waiter, third = Array.new(3) { track(File.open(@path)) }
        holder.flock(File::LOCK_EX)
        ended = nil
        fiber = Fiber.schedule do
          Timeout.timeout(how == :timeout ? ms(1) : 1000) { waiter.flock(File::LOCK_EX) }
          ended = :granted
        rescue KeyError, Timeout::Error
          ended = :interrupted
        ensure
          ended ||= :killed
        end
        Fiber.schedule do
          until_parked(scheduler, 1)
          sleep(ms(1)) if round.odd?
          holder.flock(File::LOCK_UN)
          fiber.raise(KeyError) if how == :raise && fiber.alive?
          fiber.kill if how == :kill && fiber.alive?
          assert eventually { ended }
          expected = ended == :granted ? false : 0
          assert_equal expected, third.flock(File::LOCK_EX | File::LOCK_NB), "#{how}: #{ended}"
        end
        scheduler.run
        [holder, waiter, third].each(&:close)
      end
    end
  end

  def test_a_timeout_ends_a_copy_that_waits_for_a_socket
    (silent, _), (full, _) = pair, pair
    in_fiber do
      [[silent, pair.first], [StringIO.new("x" * (16 << 20)), full]].each do |source, target|
        assert_raises(Timeout::Error) { Timeout.timeout(0.05) { IO.copy_stream(source, target) } }
      end
    end
  end

  def test_copy_stream_from_a_device_parks_only_its_fiber
    skip "Windows has no /dev/zero" if windows?
    in_fiber do
      done = false
      fiber = Fiber.schedule { done = IO.copy_stream("/dev/zero", "#{@path}.copy", 1 << 20) }
      assert_predicate fiber, :alive?
      sleep 0.001 until done
      assert_equal [1 << 20] * 2, [done, File.size("#{@path}.copy")]
    end
  end

  def test_copy_stream_copies_a_file_to_a_socket
    each_source = { path: @path, pathname: Pathname(@path), file: nil }
    each_source.each do |kind, source|
      cold
      received = nil
      in_fiber do
        a, b = pair
        reader = Fiber.schedule { received = b.read }
        opened = source || track(File.open(@path, "rb"))
        assert_equal SIZE, IO.copy_stream(opened, a), kind
        assert_equal SIZE, opened.pos unless source
        a.close
        assert eventually { !reader.alive? }
      end
      assert_bytes BYTES, received, kind.to_s
    end
  end

  # There are more FIFOs than workers, and opening files was cheap until then.
  def test_opening_a_fifo_parks_only_its_fiber
    paths = Array.new(20) { |i| "#{@path}.fifo#{i}".tap { |path| File.mkfifo(path) } }
    got = []
    in_fiber do
      50.times { File.open(@path, &:stat) }
      assert_raises(Timeout::Error) { Timeout.timeout(0.01) { File.new(paths[0], "w") } }
      opens = [File.method(:open), method(:open)].cycle
      paths.each { |path| Fiber.schedule { got << opens.next.call(path, &:read) } }
      sleep 0.001
      assert_empty got
      paths.reverse.each { |path| Fiber.schedule { opens.next.call(Pathname(path), "w", 0o600) { |file| file.write(path) } } }
    end
    assert_equal paths.sort, got.sort
    assert_equal told { File.new }, in_fiber { told { File.new } }
    assert_equal told { File.new("a\0b") }, in_fiber { told { File.new("a\0b") } }
  end

  # Each reads a file by its path.
  READERS_BY_PATH = {
    read: ->(path) { File.read(path) }, binread: ->(path) { IO.binread(path) }, readlines: ->(path) { File.readlines(path).join },
    sysopen: ->(path) { IO.open(IO.sysopen(path), &:read) }, reopen: ->(path) { File.open(File::NULL) { |io| io.reopen(path).read } },
    copy_stream: ->(path) { StringIO.new.tap { |copy| IO.copy_stream(path, copy) }.string }
  }.freeze
  # Ruby 3.3 offers the scheduler nothing before it opens these, and its patches could not keep `$_`.
  READERS_BY_HOOK = { foreach: ->(path) { [].tap { |lines| File.foreach(path) { lines << $_ } }.join } }.freeze

  # Files opened by the same method were quick, which says nothing about a FIFO.
  def test_a_fifo_opened_by_its_path_parks_only_its_fiber
    readers = RUBY_VERSION < "3.4" ? READERS_BY_PATH : READERS_BY_PATH.merge(READERS_BY_HOOK)
    in_fiber do
      readers.each_with_index do |(name, read), index|
        20.times { assert_bytes BYTES, read.call(@path), name.to_s } # the first one may run on a worker
        File.mkfifo(path = "#{@path}.#{name}")
        writer = Fiber.schedule { sleep 0; assert_equal BYTES.bytesize, index.even? ? IO.write(path, BYTES) : IO.binwrite(path, BYTES) }
        assert_bytes BYTES, read.call(path), name.to_s
        assert(eventually { !writer.alive? })
      end
    end
  end

  def test_opens_that_fail_raise_as_without_a_scheduler
    calls = %i[read binread readlines write binwrite sysopen foreach].to_h do |name|
      [name, [[], [nil], [1], ["a\0b"], ["/nowhere/file"], ["/nowhere/file", "x"], [@path, "x", 1, 2, 3, 4]].map { |given| -> { IO.public_send(name, *given) { nil } } }]
    end
    calls.each do |name, each|
      each.each { |call| assert_equal told(&call), in_fiber { told(&call) }, name.to_s }
    end
    assert_equal File.method(:read).unbind.bind_call(File, @path, 3, 1, mode: "rb"), in_fiber { File.read(@path, 3, 1, mode: "rb") }
  end

  # During a write the VM holds the IO's mutex, for which the main program cannot wait.
  def test_a_fiber_that_has_used_up_its_time_slice_writes_before_the_main_program_continues
    said = child_says(<<~RUBY, @path)
      File.open(ARGV.first, "w") do |file|
        file.sync = true
        Fiber.set_scheduler(Reactor::Scheduler.new)
        Fiber.schedule do
          began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
          nil until Process.clock_gettime(Process::CLOCK_MONOTONIC) - began > 0.002 # of a time slice, all
          2.times { file.write("a") }
        end
        file.write("b")
        Fiber.set_scheduler(nil)
      end
      print File.read(ARGV.first)
    RUBY
    assert_equal "aab", said
  end

  # --- no fiber starves ----------------------------------------------------------------------------------------------

  # A single call is enough. It is repeated if it ended before the other fiber had run three times.
  def test_one_large_read_does_not_starve_a_timer
    needs_linux "/dev/zero"
    in_fiber do
      ticks = 0
      ticker = Fiber.schedule { (sleep 0.001; ticks += 1) while ticks }
      zero = track(File.open("/dev/zero"))
      assert(eventually(TEST_TIMEOUT / 2) { ticks = 0; zero.read(64 << 20); ticks >= 3 })
    ensure
      ticker.kill
    end
  end

  # --- descriptors that block ------------------------------------------------------------------------------------------

  # Makes a reading and a writing end of each kind, without O_NONBLOCK.
  KINDS = {
    pipe: ->(_) { IO.pipe },
    socket: ->(_) { UNIXSocket.pair.reverse },
    fifo: ->(test) { File.mkfifo(path = "#{test}.fifo"); reader = File.open(path, "r+"); [reader, File.open(path, "w")] },
    terminal: ->(_) { PTY.open.then { |master, slave| slave.raw!; [master, slave] } }
  }.freeze

  KINDS.each do |kind, make|
    define_method("test_reading_from_a_blocking_#{kind}") do
      reader, writer = blocking_pair(make)
      log = []
      in_fiber do
        Fiber.schedule { log << reader.readpartial(9) }
        Fiber.schedule { log << :other; sleep 0.001; log << :still; writer.write("late") }
      end
      assert_equal [:other, :still, "late"], log
      refute_predicate reader, :nonblock?, "O_NONBLOCK must not be changed"
    end

    define_method("test_writing_to_a_full_blocking_#{kind}") do
      reader, writer = blocking_pair(make)
      size = 300_000
      got = +""
      waited = nil
      in_fiber do
        writing = Fiber.schedule { writer.write("0123456789abcdef" * (size / 16)) }
        sleep 0.001
        waited = writing.alive?
        got << reader.readpartial(65_536) until got.size == size
      end
      assert waited, "it was never full"
      assert_bytes "0123456789abcdef" * (size / 16), got
      refute_predicate writer, :nonblock?, "O_NONBLOCK must not be changed"
    end
  end

  def blocking_pair(make)
    Reactor::Scheduler.new.close # the first scheduler changes the mode of the sockets that exist, later ones of none
    require "io/console"
    make.call(@path).each do |io|
      track(io)
      io.nonblock = false
      io.sync = true
    end
  end
end
