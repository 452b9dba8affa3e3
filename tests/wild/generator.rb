# frozen_string_literal: true

module Wild
  # Makes the text of a call from a seed.
  class Generator
    IOS = [
      "reader", 'reader("text")', "writer", "ended", "broken", "full", "socket", 'socket("text")', "listener", "udp", "file",
      'file("")', 'file("text", "r")', 'file("text", "a+")', 'file("text", "w+", Wild::OwnFile)', "null", "closed", "closed_file",
      "stolen", "own_io", "delegate(reader)", 'delegate(file)', "IO.allocate", "File.allocate", "TCPSocket.allocate",
      "reader.freeze", "writer.freeze", "file.freeze", 'reader("text").tap { _1.timeout = 0.0001 }', "reader.tap { _1.nonblock = false }",
      'file("x" * 300_000)', 'socket.tap(&:close_read)', 'socket.tap(&:close_write)', 'reader("text").tap { |io| io.ungetbyte("u") }'
    ].freeze
    RARE_IOS = ["terminal"].freeze

    BUFFERS = [
      "IO::Buffer.new(16)", "IO::Buffer.new(1)", "empty_buffer", "freed", "slice", "slice_of_freed", 'IO::Buffer.for("frozen")',
      'IO::Buffer.for(+"string")', 'IO::Buffer.string(4) { }.then { |s| IO::Buffer.for(s) }', "Wild::OwnBuffer.new(16)",
      "IO::Buffer.new(65_536, IO::Buffer::MAPPED)", "IO::Buffer.allocate", 'IO::Buffer.new(1 << 20)', "IO::Buffer.new(16).freeze",
      'IO::Buffer.new(300_000)'
    ].freeze

    # No duration between zero and a thousand seconds: what comes of a call must not depend on time.
    DURATIONS = [
      "nil", "0", "0.0", "-0.0", "-1", "-0.5", "1000", "1e6", "1e300", "2**31", "2**62", "2**63", "2**64", "2**100", "-2**64",
      "Float::NAN", "Float::INFINITY", "-Float::INFINITY", "Rational(-1, 3)", "Rational(4000, 3)", "Complex(1, 1)", "Rational(0)"
    ].freeze

    NUMBERS = %w[
      0 0 1 2 4 8 16 17 -1 -16 1.5 -1.5 2**31 2**31-1 -2**31 2**32 2**62 2**62-1 2**63-1 2**63 2**64-1 2**64 2**100 -2**63 -2**64
      1e300 Float::NAN Float::INFINITY nil
    ].freeze

    EVENTS = %w[1 1 2 4 3 5 6 7 0 8 -1 1.5 2**31 2**64 nil].freeze

    STRINGS = ['"text"', '""', '"a\0b"', '"\xff"', '"x" * 5000', '"text".freeze', ":symbol", "nil", "1"].freeze

    CLASSES = ["Wild::Raised", "Wild::Raised.new", "Exception", "String", "nil", "Wild::Raised.new.freeze", "Class.new(Exception)",
               "Timeout::Error", "acting(:exception) { nil }", "1", '"text"'].freeze

    FIBERS = %w[Fiber.current Fiber.new{} foreign_fiber dead_fiber dead_thread Thread.current nil 1 Object.new].freeze

    ANYTHING = [
      "nil", "true", "false", "1", "1.5", '"text"', ":symbol", "[]", "{}", "[1]", "Object.new", "BasicObject.new", "Object", "Class.new",
      "-> { }", "method(:puts)", "Thread.current", "Fiber.current", "Thread::Mutex.new", "Thread::Queue.new", "1..2", "ENV", "self",
      "(a = []; a << a)", "Struct.new(:a).new(1)", "Float::NAN", "2**64", "Ractor.current", "ObjectSpace::WeakMap.new", "$stdin", "s",
      '"text".freeze', "Object.new.freeze", "Wild::Everything", "Process.clock_gettime(1)", "binding", "/x/", "Encoding::UTF_8"
    ].freeze

    # What an object does when it is asked something. The value after it is its answer.
    EFFECTS = [
      "raise Wild::Raised", "raise Wild::Raised", "raise Exception, 'wild'", "sleep 0", "sleep 0", "io.close", "buffer.free", "buffer.resize(1)", "Thread.pass",
      "throw :nothing", "Fiber.yield", "Thread.new { io.close }.join", "io.close_write", "Process.kill(:CONT, $$)", "GC.start(full_mark: false)",
      "io.reopen(null)", "IO.for_fd(io.fileno, autoclose: false).close", "nil",
      "Fiber.schedule { io.close }", "s.unblock(nil, Fiber.current)", "s.yield", "s.io_wait(io, 1, 0)", "s.timeout_after(0, Wild::Raised) { sleep }",
      "s.fiber { sleep }", "s.fiber { raise Wild::Raised }", "s.offload { 1 }", "Fiber.current.kill", "s.kernel_sleep", "s.io_close(-1)",
      "Enumerator.new { |y| sleep 0; y << 1 }.next", "s.block(nil, nil)", "s.stats", "s.dump"
    ].freeze
    METHODS = %i[
      to_io to_int to_i to_f divmod coerce == hash eql? inspect to_s to_str to_path to_ary to_a to_hash to_proc call exception === alive?
      respond_to? zero? < > - * nil? is_a? kind_of? class finite? negative? each raise transfer object_id equal? != ! instance_of? to_sym
    ].freeze

    BLOCKS = ["{ }", "{ sleep 0 }", "{ raise Wild::Raised }", "{ |*a| a }", "{ throw :nothing }", "{ sleep }", "{ io.close }", "(&nil)", "(&:to_s)",
              "{ Fiber.yield }", "{ buffer.free }", "{ Fiber.current.kill }", "", "{ Thread.pass }"].freeze

    # Receiver and method, kinds of arguments, and whether it takes a block.
    HOOKS = [
      ["io_wait", %w[io events duration], 8], ["io_read", %w[io buffer number number], 12], ["io_write", %w[io buffer number number], 12],
      ["kernel_sleep", %w[duration], 4], ["block", %w[any duration], 4], ["unblock", %w[any fiber], 4],
      ["io_select", %w[ios ios ios duration], 6], ["timeout_after", %w[duration class string], 6, :block],
      ["fiber", [], 3, :block], ["fiber", %w[any], 2, :block], ["fiber", %w[storage], 2, :block], ["yield", [], 1],
      ["process_wait", %w[pid number], 2], ["address_resolve", %w[host], 1], ["fiber_interrupt", %w[target class], 3],
      ["on_ready", %w[io events], 4, :block], ["on_ready", %w[io watching], 4, :block], ["offload", [], 1, :block],
      ["wait_any", %w[ios masks duration], 4], ["prepare_close", %w[io], 3], ["prepare_half_close", %w[io any], 3],
      ["prepare_reopen", %w[io], 2], ["replaced", %w[io any], 2], ["run_by_cost", %w[any work], 2], ["run_inline", %w[work], 1], ["run_waiting", %w[work], 2],
      ["run_on_own_thread", [], 2, :block], ["cancel_watcher", %w[any], 2], ["cancel_fiber", %w[fiber class], 2], ["cancelled?", %w[fiber], 1],
      ["lookup", %w[host string number number number number], 1],
      ["fibers", [], 1], ["stats", [], 1], ["dump", [], 1], ["watchers", [], 1], ["yield_if_slice_spent", [], 1],
      ["live", [], 1], ["closed?", [], 1], ["wait_hooks", [], 1], ["fiber_rows", [], 1], ["progress_count", [], 1], ["running_fiber", [], 1],
      ["virtual_elapsed", [], 1], ["forked_child?", [], 1], ["io_close", %w[descriptor], 1],
      ["io_pread", %w[io buffer number number number], 8], ["blocking_operation_wait", %w[work], 2],
      ["push_when_unused", %w[io any], 2], ["hung_up?", %w[io], 1], ["prefetch", %w[io number number number], 2], ["sync_by_driver", %w[io any], 2]
    ].freeze
    # On a scheduler of its own, because it is over afterwards.
    LAST = [["close", []], ["run", []], ["drain", []], ["cancel", []], ["cancel", %w[any]], ["shutdown", []], ["scheduler_close", []]].freeze
    POLLER = [
      ["wait", %w[io events], 3], ["finish", %w[number events], 2], ["poll", %w[zero], 2], ["wake", [], 1], ["close_descriptor", %w[descriptor], 1],
      ["read", %w[io buffer number number], 4], ["write", %w[io buffer number number], 4], ["stats", [], 1], ["backend", [], 1], ["close", [], 1],
      ["closed?", [], 1]
    ].freeze
    SELECTOR = [["select", %w[zero], 2], ["close", [], 1], ["io_close", %w[descriptor], 1], ["wakeup", [], 1], ["ready?", [], 1]].freeze
    FUNCTIONS = [
      ["Reactor::Internal.io_number", %w[io], 2], ["Reactor::Internal.fifo?", %w[path], 2], ["Reactor::Internal.pidfd", %w[pid], 1], ["Reactor::Internal.woken?", %w[any], 2], ["Reactor::Internal.announce_close", %w[io], 2], ["Reactor::Internal.close_blocks?", [], 1], ["Reactor::Scheduler.new", %w[options], 1],
      ["Reactor.dump_on", %w[any], 1], ["Reactor::Server.new", %w[io any], 2, :block], ["Reactor.dump", %w[any], 1]
    ].freeze

    # Methods of Ruby's that lead to the hooks.
    RUBY = [
      ["sleep", %w[duration], 4], ["IO.select", %w[ios ios ios duration], 6], ["io.wait", %w[events duration], 3], ["io.wait", %w[duration symbol], 2],
      ["io.wait_readable", %w[duration], 3], ["io.wait_writable", %w[duration], 2], ["io.wait_priority", %w[duration], 1], ["io.timeout=", %w[duration], 2],
      ["io.read", %w[number], 4], ["io.read", %w[number mutable], 3], ["io.readpartial", %w[number], 3], ["io.readpartial", %w[number mutable], 3],
      ["io.read_nonblock", %w[number mutable], 2], ["io.sysread", %w[number mutable], 2], ["io.write", %w[any], 3], ["io.write", %w[string string], 2],
      ["io.syswrite", %w[string], 2], ["io.write_nonblock", %w[string], 2], ["io.pread", %w[number number], 3], ["io.pwrite", %w[string number], 3],
      ["io.gets", %w[string number], 2], ["io.getc", [], 1], ["io.each_line", %w[number], 1, :block], ["io.close", [], 1], ["io.close_read", [], 1],
      ["io.close_write", [], 1], ["io.reopen", %w[io], 3], ["io.fsync", [], 2], ["io.fdatasync", [], 1], ["io.flush", [], 1], ["io.flock", %w[number], 2],
      ["io.truncate", %w[number], 1], ["io.seek", %w[number number], 1], ["io.recv", %w[number number], 2], ["io.send", %w[string number], 2],
      ["io.accept", [], 1], ["io.sysseek", %w[number], 1], ["File.new", %w[path string], 3], ["File.open", %w[path], 3, :block], ["File.read", %w[path number number], 2],
      ["IO.copy_stream", %w[io io number number], 6], ["IO.copy_stream", %w[path io], 2], ["IO.copy_stream", %w[any any], 2],
      ["Timeout.timeout", %w[duration class string], 5, :block], ["Thread::Queue.new.pop", %w[limit], 2], ["Thread::SizedQueue.new(1).push", %w[any limit], 2],
      ["Thread.new { }.join", %w[duration], 2], ["Process.wait", %w[pid number], 2],
      ["Addrinfo.getaddrinfo", %w[host string any any], 1], ["Socket.getaddrinfo", %w[host string], 1], ["Addrinfo.tcp", %w[host string], 1],
      ["buffer.read", %w[io number number], 4], ["buffer.write", %w[io number number], 4], ["buffer.pread", %w[io number number number], 3],
      ["Socket.sockaddr_in", %w[any host], 1], ["IPSocket.getaddress", %w[host], 1], ["io.connect", %w[any], 1], ["io.shutdown", %w[any], 1]
    ].freeze

    PLACES = [
      "%s", "%s", "%s", "%s", "%s", "%s", "%s", "Thread.new { %s }.tap { _1.report_on_exception = false }.value",
      "Fiber.new(blocking: true) { %s }.resume", "Fiber.blocking { %s }", "Fiber.new { %s }.resume", "Enumerator.new { |y| y << (%s) }.next",
      "catch(:nothing) { %s }", "begin; %s; ensure; sleep 0; end", "Thread.handle_interrupt(Object => :never) { %s }"
    ].freeze

    # @param seed [Integer]
    def initialize(seed)
      @seed = seed
    end

    # @return [String] the call
    def call(index)
      @random = Random.new((@seed * 1_000_000_007) + index)
      body = make
      lines = []
      lines << "buffer = #{pick(BUFFERS)}" if body.include?("buffer")
      lines << "io = #{rarely(100) ? pick(RARE_IOS) : pick(IOS)}" if body.match?(/\bio\b/)
      [*lines, possible(body)].join("\n")
    end

    private

    # Without what no scheduler can do anything about: the VM aborts if a thread's own fiber is killed, and a sleep in a blocking
    # fiber is the thread's. Reactor.dump writes in one, and blocking work, which is C code, runs in one if it is cheap.
    def possible(text)
      # A file that is copied to its own end grows until the length is reached: 2 GiB.
      text = text.gsub("copy_stream(io, io", "copy_stream(io, null")
      text = text.gsub("Fiber.current.kill", "nil") if text.match?(/Thread|offload|run_|fresh/)
      text.match?(/blocking|Reactor\.dump|run_inline|run_waiting|run_by_cost/) ? text.gsub(/\bsleep }/, "sleep 0 }").gsub(/\bsleep;/, "sleep 0;") : text
    end

    def make
      case @random.rand(100)
      when 0...63 then placed(HOOKS, receiver)
      when 63...66 then "fresh { |s| #{one("s.", LAST)} }"
      when 66...70 then placed(POLLER, "poller.")
      when 70...73 then placed(SELECTOR, "selector.")
      when 73...77 then placed(FUNCTIONS, "")
      else one("", RUBY)
      end
    end

    def placed(table, receiver) = one(receiver, table).then { |call| pick(PLACES).sub("%s") { call } }

    def receiver
      case @random.rand(30)
      when 0 then "closed_scheduler."
      when 1 then "unborn_scheduler."
      else "s."
      end
    end

    def one(receiver, table)
      name, kinds, _weight, block = weighted(table)
      arguments = kinds.map { |kind| argument(kind) }
      if kinds != ["zero"] && rarely(12)
        rarely(2) ? arguments.pop : arguments << anything
      end
      return "#{name} #{arguments.first || "nil"}" if name.end_with?("=")

      body = (block && !rarely(8)) || rarely(40) ? pick(BLOCKS) : ""
      if body.start_with?("(")
        arguments << body[1..-2]
        body = ""
      end
      "#{receiver}#{name}(#{arguments.join(", ")}) #{body}".rstrip
    end

    def argument(kind)
      # What is raised in the target must not strike the conductor. The thread of a selector that is given nil sleeps for ever.
      return of_kind(kind) if %w[target zero].include?(kind)

      case @random.rand(24)
      when 0, 1 then anything
      when 2, 3 then acting(kind)
      else of_kind(kind)
      end
    end

    def of_kind(kind)
      case kind
      when "io" then rarely(3) ? pick(IOS) : "io"
      when "buffer" then rarely(3) ? pick(BUFFERS) : "buffer"
      when "events" then pick(EVENTS)
      when "duration" then pick(DURATIONS)
      when "zero" then pick(["0", "0.0", "-1", '"1"', "Float::NAN", ":x", "[]"])
      when "number" then pick(NUMBERS)
      when "string" then pick(STRINGS)
      when "mutable" then pick(['+"text"', '""', '"text".freeze', "nil", "1", "String.new(capacity: 100)"])
      when "class" then pick(CLASSES)
      when "fiber" then pick(FIBERS)
      when "target" then pick(%w[Fiber.current dead_fiber foreign_fiber dead_thread nil 1 Object.new BasicObject.new])
      when "ios" then pick(["nil", "[io]", "[io, io]", "[#{pick(IOS)}]", "[1]", "io", "[]", "[nil]", "[io, #{pick(IOS)}]", "[io].freeze", "[[io]]"])
      when "masks" then pick(["[1]", "[1, 1]", "[]", "[0]", "[2**64]", "[nil]", "1", "nil", "[2, 4]"])
      when "pid" then pick(%w[-1 0 2**31-1 2**31 2**64 -2**64 nil 4194305])
      when "host" then pick(['"127.0.0.1"', '"::1"', "nil", '""', '"a\0b"', "1", '"x" * 300', '"127.0.0.1".freeze', '"256.0.0.1.."'])
      when "path" then pick(['"missing"', '"."', '"a\0b"', '""', "nil", '"/dev/null"', '"x" * 5000', ":symbol", "io", '"missing/x"', "1.5"])
      when "symbol" then pick(%w[:r :w :rw :read :x nil "r" 1])
      when "storage" then pick(["storage: nil", "storage: true", "storage: {}", "storage: { a: 1 }", 'storage: { "a" => 1 }', "storage: 1", "blocking: true", "x: 1", "storage: {}.freeze"])
      when "watching" then pick(["timeout: #{pick(DURATIONS)}", "transient: #{anything}", "x: 1", "timeout: #{anything}"])
      when "limit" then pick(["timeout: #{pick(DURATIONS)}", "true", "timeout: #{anything}", "x: 1"])
      when "options" then pick(["backend: #{anything}", "workers: #{pick(NUMBERS)}", "policy: #{anything}", "stall: #{anything}", "x: 1", "on_stall: 1"])
      when "work" then pick(["-> { 1 }", "-> { raise Wild::Raised }", "-> { sleep 0 }", "nil", "1", "Object.new", "-> { throw :nothing }", "proc { }"])
      when "descriptor" then pick(%w[-1 2**31 2**64 nil "1" 1.5 100_000 :x])
      else anything
      end
    end

    def anything
      rarely(3) ? acting("any") : pick(ANYTHING)
    end

    # An object that acts when it is asked what it is.
    def acting(kind)
      answer = case kind
               when "any" then pick(ANYTHING - %w[s self])
               when "storage", "watching", "limit", "options" then "1"
               else of_kind(kind)
               end
      action = "{ #{pick(EFFECTS)}; #{answer} }"
      case @random.rand(6)
      when 0 then "everything #{action}".sub(/\A/, "(").concat(")")
      when 1 then "acting_integer_like #{action}".sub(/\A/, "(").concat(")")
      when 2 then "acting(:to_io) #{action}"
      else "acting(:#{METHODS.sample(random: @random)}) #{action}".then { |text| text.match?(/:[!=<>*-]/) ? text.sub(/acting\(:([^)]+)\)/, 'acting(:"\1")') : text }
      end
    end

    def weighted(table)
      total = table.sum { |row| row[2] || 1 }
      at = @random.rand(total)
      table.find { |row| (at -= row[2] || 1).negative? }
    end

    def pick(list) = list[@random.rand(list.size)]

    def rarely(one_in) = @random.rand(one_in).zero?
  end
end
