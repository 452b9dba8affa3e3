# frozen_string_literal: true

require_relative "helper"

# A scheduler in each of many threads and Ractors, and what they share.
class TestRactors < ReactorTest
  def test_a_scheduler_in_each_of_many_threads
    ring = Array.new(10) { Queue.new }
    run_plain do
      threads = ring.each_index.map do |i|
        Thread.new do
          Fiber.set_scheduler(Reactor::Scheduler.new)
          Fiber.schedule { 50.times { ring[(i + 1) % ring.size] << ring[i].pop + 1 } }
          3.times { |n| Fiber.schedule { 10.times { sleep 0.0005 * n } } }
        end
      end
      ring.first << 0
      threads.each(&:join)
    end
    assert_equal 500, ring.first.pop
  end

  # With M:N threads Ruby moves threads between native threads. Threads with a scheduler must stay on their native thread on
  # Ruby 3.4, and must not on 4.0: otherwise Ruby crashes.
  # No shared thread ends here, and the process ends by exit!. On 3.4 the VM may die ("[BUG] unreachable") as a shared thread
  # ends while another thread is locked to its native one, without a scheduler as well.
  def test_schedulers_in_mn_threads
    mn = { "RUBY_MN_THREADS" => "1" }
    skip "this Ruby has no M:N threads" unless IO.popen([mn, RbConfig.ruby, "-v"], &:read).include?("+MN")
    skip "this Ruby cannot keep a thread on its native thread" if RUBY_VERSION < "4.0" && !Thread.new { Reactor::Internal.lock_native_thread }.value
    out = child_says(<<~'RUBY', __FILE__, env: mn)
      require "socket"
      file = File.read(ARGV[0])
      Array.new(3) { Thread.new { loop { sleep 0.0002 } } } # they move between native threads
      threads = Array.new(4) do
        Thread.new do
          done = []
          Fiber.set_scheduler(Reactor::Scheduler.new)
          pairs = Array.new(3) { UNIXSocket.pair }
          questions, answers = Queue.new, Queue.new
          Thread.new { loop { questions.pop.then { |i| sleep 0.0002; answers << i } } }
          pairs.each do |ours, theirs|
            Fiber.schedule { while (text = theirs.readpartial(9)) != "end" do theirs.write(text) end }
            Fiber.schedule do
              done << (0...50).all? { |i| ours.write("#{i}"); ours.readpartial(9) == "#{i}" }
              ours.write("end")
            end
          end
          Fiber.schedule { 20.times { sleep 0.0005 }; done << true }
          Fiber.schedule { done << (0...20).all? { File.read(ARGV[0]) == file } }
          Fiber.schedule { done << (0...20).all? { |i| questions << i; answers.pop == i } }
          Fiber.scheduler.run
          pairs.flatten.each(&:close)
          done
        end
      end
      threads.each { |thread| p thread.value }
      $stdout.flush
      exit!(true)
    RUBY
    assert_equal "#{[true] * 6}\n" * 4, out
  end

  # What the first of them makes, it makes under a lock. A collection of garbage meanwhile waits for the other Ractor.
  def test_two_ractors_that_use_the_library_first_do_not_deadlock
    5.times do
      out = child_says(<<~'RUBY')
        Warning[:experimental] = false
        ractors = Array.new(2) do
          Ractor.new do
            Ractor.receive
            GC.stress = true
            Reactor.instance_eval { const_get(:Internal) }.schedulers
            GC.stress = false
            :done
          end
        end
        ractors.each { |ractor| ractor.send(1) }
        p ractors.map { |ractor| ractor.respond_to?(:value) ? ractor.value : ractor.take }
      RUBY
      assert_equal "[:done, :done]\n", out
    end
  end

  # Before Ruby 4.0, all Ractors share a pool of fiber stacks without a lock, so Ractors that make fibers at the same time crash
  # even without a scheduler. There they run one after the other.
  def test_a_scheduler_in_each_of_two_ractors
    out = child_says(<<~'RUBY')
      require "socket"
      require "timeout"
      Warning[:experimental] = false
      value = ->(ractor) { ractor.respond_to?(:value) ? ractor.value : ractor.take }
      results = Array.new(2) do |number|
        ractor = Ractor.new(number) do |own|
          log = []
          Fiber.set_scheduler(Reactor::Scheduler.new)
          a, b = UNIXSocket.pair
          r, = pipe = IO.pipe
          queue = Queue.new
          Fiber.schedule { log << a.readpartial(9) }
          Fiber.schedule { log << queue.pop }
          Fiber.schedule { sleep 0.01; b << "bytes"; queue << :item }
          Fiber.schedule { Timeout.timeout(0.005) { sleep } rescue log << $!.class }
          Fiber.schedule { r.readpartial(1) rescue log << $!.class }
          Fiber.schedule { sleep 0.02; pipe.each(&:close) }
          Fiber.schedule { log << Process.wait2(spawn(*shell("exit 4")))[1].exitstatus }
          Fiber.scheduler.run
          [own, Reactor.backend, log.map(&:to_s).sort]
        end
        RUBY_VERSION < "4.0" ? value.(ractor) : ractor
      end
      results.each { |result| p(result.is_a?(Ractor) ? value.(result) : result) }
    RUBY
    expected = Array.new(2) { |number| [number, BACKEND, ["4", "IOError", "Timeout::Error", "bytes", "item"]].inspect }
    assert_equal expected, out.lines(chomp: true)
  end

  def test_a_fiber_of_a_ractor_waits_for_a_lock_and_stops_no_other_fiber
    out = child_says(<<~'RUBY')
      require "tempfile"
      Warning[:experimental] = false
      file = Tempfile.create("lock")
      file.flock(File::LOCK_EX)
      ractor = Ractor.new(file.path) do |path|
        Fiber.set_scheduler(Reactor::Scheduler.new)
        granted = nil
        waiting = Fiber.schedule { File.open(path) { |mine| granted = [mine.flock(File::LOCK_EX)] } }
        Fiber.schedule do
          rows = -> { Reactor::FiberStatus.rows(Fiber.scheduler).select { |row| row.fiber.equal?(waiting) } }
          sleep 0.001 until (row = rows.call.find { |row| row.state == :waiting })
          Ractor.main.send(row.hook)
          sleep 0.001 until granted
        end
        Fiber.scheduler.run
        granted
      end
      p Ractor.receive
      file.flock(File::LOCK_UN)
      p ractor.respond_to?(:value) ? ractor.value : ractor.take
      File.unlink(file.path)
    RUBY
    # By a thread, except where Ruby moves the threads of a Ractor between native ones.
    by_thread = RUBY_VERSION >= "3.4"
    assert_equal "#{by_thread ? ":block" : ":sleep"}\n[0]\n", out
  end

  def test_every_constant_of_the_library_is_shareable_but_for_a_method_of_rubys
    names = Dir[File.join(LIB, "**/*.rb")].flat_map { |path| File.read(path).scan(/^ *(?:(?:class|module) )?([A-Z]\w*)\b(?: =| <|$)/) }.flatten.uniq
    left, seen, found = [Reactor], [], []
    while (place = left.pop)
      seen << place
      names.select { |name| place.const_defined?(name, false) }.each do |name|
        value = place.const_get(name, false)
        left << value if value.is_a?(Module) && value.name.to_s.start_with?("Reactor") && !seen.include?(value)
        found << "#{place}::#{name}" unless Ractor.shareable?(value)
      end
    end
    assert_empty found
    assert_operator seen.size, :>, 30, "is this test blind?"
  end

  # If two Ractors call Module#prepend on one class, Ruby loses modules or crashes: in half the runs with 1,000 classes.
  def test_concurrent_patching_by_ractors_patches_each_class_once
    out = child_says(<<~RUBY)
      Warning[:experimental] = false
      COUNT = 1000
      COUNT.times do |number|
        Object.const_set("Place\#{number}", Class.new { def depth = 0 })
        3.times { |i| Object.const_set("Part\#{i}_\#{number}", Module.new { def depth = super + 1 }) }
        Object.const_set("Set\#{number}", Module.new).module_eval <<~CODE
          def self.install = Place\#{number}.prepend(Part0_\#{number}).prepend(Part1_\#{number}).prepend(Part2_\#{number})
        CODE
      end
      ractors = Array.new(3) do
        Ractor.new do
          Ractor.main.send(:there)
          at = Ractor.receive
          nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < at
          Array.new(COUNT) do |number|
            Reactor.const_get(:Patches).install(Object.const_get("Set\#{number}"))
            Object.const_get("Place\#{number}").new.depth
          end.tally
        end
      end
      3.times { Ractor.receive }
      at = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.01 # all begin at this moment
      ractors.each { |ractor| ractor.send(at) }
      ractors.each { |ractor| p(ractor.respond_to?(:value) ? ractor.value : ractor.take) }
    RUBY
    assert_equal ["{3=>1000}"] * 3, out.delete(" ").lines(chomp: true)
  end

  def test_the_patch_lock_can_be_waited_for_interrupted_and_taken_in_a_forked_child
    skip "plain Ruby locks a file" unless Reactor::Internal.respond_to?(:lock_patches)
    out = child_says(<<~'RUBY')
      internal = Reactor.const_get(:Internal)
      waits = ->(thread) { sleep 0.001 until thread.status == "sleep" }
      internal.lock_patches
      raised, killed, waiting = Array.new(3) { Thread.new { internal.exclusively { :locked } } }.each(&waits)
      raised.report_on_exception = false
      raised.raise("raised")
      p((raised.value rescue $!.message))
      p killed.kill.value
      child = fork { internal.exclusively { exit!(7) } }
      p Process.wait2(child).last.exitstatus
      p waiting.alive?
      internal.unlock_patches
      p waiting.value
      p Array.new(2) { internal.lock_patches }
    RUBY
    assert_equal ['"raised"', "nil", "7", "true", ":locked", "[true, false]"], out.lines(chomp: true)
  end

  # Outside of the main Ractor Ruby moves threads between native threads unless told not to; see docs/performance.md.
  def test_a_fiber_waits_for_threads_in_a_ractor
    skip "Ruby 3.3 has no way to keep a thread on its native one" if RUBY_VERSION < "3.4"
    out = child_says(<<~'RUBY')
      Warning[:experimental] = false
      ractor = Ractor.new do
        log = []
        Fiber.set_scheduler(Reactor::Scheduler.new)
        50.times { |i| Fiber.schedule { log << Thread.new { sleep 0.001; i }.value } }
        Fiber.scheduler.run
        log.sort
      end
      p((ractor.respond_to?(:value) ? ractor.value : ractor.take) == [*0...50])
    RUBY
    assert_equal "true\n", out
  end
end
