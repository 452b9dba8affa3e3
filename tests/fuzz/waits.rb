# frozen_string_literal: true

module Fuzz
  # The kinds of waits, as source text. In it %{n} is the number that makes names unique, and %{s} a number of seconds.
  #
  # [setup]  makes what is waited for
  # [call]   waits
  # [feed]   ends the wait by what it waits for
  # [eof]    ends it by the end of the data; nil if there is none
  # [io]     the IO object that can be closed under it; nil if there is none
  # [timed]  the same wait with a limit in seconds; nil if it takes none
  # [shared] whether several tasks may be in one such wait: each is ended by a feed of its own (:each), one feed ends all
  #          (:all); nil if not
  Wait = Data.define(:setup, :call, :feed, :eof, :io, :timed, :shared) do
    def initialize(setup:, call:, feed: nil, eof: nil, io: nil, timed: nil, shared: nil) = super
  end

  # Two ends of a connection: r waits, w feeds.
  SOURCES = {
    "pipe" => "r%{n}, w%{n} = stage.own(*IO.pipe)",
    "unix" => "r%{n}, w%{n} = stage.own(*UNIXSocket.pair)",
    "tcp" => "r%{n}, w%{n} = stage.tcp_pair",
    "udp" => "r%{n}, w%{n} = stage.udp_pair",
    "terminal" => "r%{n}, w%{n} = stage.terminal",
    "fifo" => "r%{n}, w%{n} = stage.fifo",
    "popen" => "r%{n} = w%{n} = stage.own(IO.popen(\"cat\", \"r+\")).first"
  }.freeze

  # A call, and the same with a limit.
  READS = {
    "readpartial" => ["r%{n}.readpartial(4)", nil],
    "read" => ["r%{n}.read(4)", nil],
    "gets" => ["r%{n}.gets", "(r%{n}.timeout = %{s}) && r%{n}.gets"],
    "getc" => ["r%{n}.getc", nil],
    "sysread" => ["r%{n}.sysread(4)", nil],
    "wait_readable" => ["r%{n}.wait_readable(60) && :ready", "r%{n}.wait_readable(%{s})"],
    "select" => ["IO.select([r%{n}], nil, nil, 60) && :ready", "IO.select([r%{n}], nil, nil, %{s})"],
    "io_wait" => ["r%{n}.wait(IO::READABLE, 60) && :ready", "r%{n}.wait(IO::READABLE, %{s})"]
  }.freeze

  RECEIVES = {
    "recv" => ["r%{n}.recv(4)", "(r%{n}.timeout = %{s}) && r%{n}.recv(4)"],
    "recvfrom" => ["r%{n}.recvfrom(4).first", nil],
    "recvmsg" => ["r%{n}.recvmsg&.first", nil]
  }.freeze

  SHARED_READS = { "readpartial" => :each, "recv" => :each, "wait_readable" => :all, "select" => :all, "io_wait" => :all }.freeze
  SOCKETS = %w[unix tcp udp].freeze

  TRANSFERS = SOURCES.flat_map do |source, setup|
    calls = READS.merge(SOCKETS.include?(source) ? RECEIVES : {})
    calls = calls.slice("readpartial", "wait_readable", "select", "io_wait", *RECEIVES.keys) if source == "udp"
    calls.map do |name, (call, timed)|
      eof = { "udp" => nil, "popen" => "w%{n}.close_write" }.fetch(source, "w%{n}.close")
      shared = SHARED_READS[name] unless source == "popen"
      ["#{source}.#{name}", Wait.new(setup:, call:, feed: "w%{n}.write(\"abc\\n\")", eof:, io: "r%{n}", timed:, shared:)]
    end
  end.to_h

  # A wait of which nothing but the readiness of an IO is the end.
  WATCHES = SOURCES.slice("pipe", "unix", "tcp", "udp", "terminal").to_h do |source, setup|
    ["#{source}.on_ready", Wait.new(setup:, call: "stage.on_ready(r%{n})", feed: "w%{n}.write(\"abc\\n\")", eof: ("w%{n}.close" unless source == "udp"),
                                    timed: "stage.on_ready(r%{n}, %{s})", shared: :all)]
  end

  OTHER_TRANSFERS = {
    "pipe.read_all" => Wait.new(setup: SOURCES["pipe"], call: "r%{n}.read", feed: "w%{n}.write(\"abc\\n\"); w%{n}.close", io: "r%{n}"),
    # Without a scheduler, a target that IO.copy_stream opens itself stays open if an exception ends the copy.
    "unix.copy_stream" => Wait.new(setup: "#{SOURCES["unix"]}; n%{n} = stage.own(File.new(File::NULL, \"w\")).first", call: "IO.copy_stream(r%{n}, n%{n})",
                                   feed: "w%{n}.write(\"abc\\n\"); w%{n}.close", io: "r%{n}"),
    "pipe.write" => Wait.new(setup: SOURCES["pipe"], call: "w%{n}.write(\"x\" * 1_000_000)",
                             feed: "r%{n}.read(1_000_000)", eof: "r%{n}.close", io: "w%{n}"),
    "unix.write" => Wait.new(setup: SOURCES["unix"], call: "w%{n}.write(\"x\" * 1_000_000)",
                             feed: "r%{n}.read(1_000_000)", eof: "r%{n}.close", io: "w%{n}"),
    "tcp.accept" => Wait.new(setup: "t%{n} = stage.own(TCPServer.new(\"127.0.0.1\", 0)).first", call: "stage.own(t%{n}.accept).size",
                             feed: "stage.own(TCPSocket.new(\"127.0.0.1\", t%{n}.local_address.ip_port))", io: "t%{n}", shared: :each),
    "unix.accept" => Wait.new(setup: "u%{n} = stage.own(UNIXServer.new(path%{n} = \"\#{stage.path}.socket\")).first",
                              call: "stage.own(u%{n}.accept).size", feed: "stage.own(UNIXSocket.new(path%{n}))", io: "u%{n}"),
    "fifo.open" => Wait.new(setup: "path%{n} = stage.path(:fifo)", call: "stage.own(File.open(path%{n})).size",
                            feed: "stage.own(File.open(path%{n}, \"w\"))")
  }.freeze

  LOCKS = {
    "pop" => Wait.new(setup: "q%{n} = Thread::Queue.new", call: "q%{n}.pop", feed: "q%{n} << :item", eof: "q%{n}.close",
                      timed: "q%{n}.pop(timeout: %{s})", shared: :each),
    "long_pop" => Wait.new(setup: "q%{n} = Thread::Queue.new", call: "q%{n}.pop(timeout: 60)", feed: "q%{n} << :item",
                           eof: "q%{n}.close", timed: "q%{n}.pop(timeout: %{s})"),
    "sized_push" => Wait.new(setup: "q%{n} = Thread::SizedQueue.new(1).push(0)", call: "q%{n}.push(1)", feed: "q%{n}.pop",
                             eof: "q%{n}.close", timed: "q%{n}.push(1, timeout: %{s})", shared: :each),
    "condition" => Wait.new(setup: "m%{n} = Thread::Mutex.new; c%{n} = Thread::ConditionVariable.new",
                            call: "m%{n}.synchronize { c%{n}.wait(m%{n}); m%{n}.owned? }", feed: "m%{n}.synchronize { c%{n}.signal }",
                            shared: :each),
    "long_condition" => Wait.new(setup: "m%{n} = Thread::Mutex.new; c%{n} = Thread::ConditionVariable.new",
                                 call: "m%{n}.synchronize { c%{n}.wait(m%{n}, 60); m%{n}.owned? }",
                                 feed: "m%{n}.synchronize { c%{n}.broadcast }", shared: :all,
                                 timed: "m%{n}.synchronize { c%{n}.wait(m%{n}, %{s}); m%{n}.owned? }"),
    "monitor_condition" => Wait.new(setup: "m%{n} = Monitor.new; c%{n} = m%{n}.new_cond",
                                    call: "m%{n}.synchronize { m%{n}.synchronize { c%{n}.wait; m%{n}.mon_owned? } }",
                                    feed: "m%{n}.synchronize { c%{n}.signal }", shared: :each,
                                    timed: "m%{n}.synchronize { c%{n}.wait(%{s}); m%{n}.mon_owned? }"),
    "mutex" => Wait.new(setup: "stage.hold(m%{n} = Thread::Mutex.new, :%{by})", call: "m%{n}.synchronize { m%{n}.owned? }",
                        feed: "stage.release(m%{n})", shared: :all),
    "monitor" => Wait.new(setup: "stage.hold(m%{n} = Monitor.new, :%{by})", call: "m%{n}.synchronize { m%{n}.mon_owned? }",
                          feed: "stage.release(m%{n})", shared: :all),
    "flock" => Wait.new(setup: "f%{n}, g%{n} = stage.own(*Array.new(2).fill(stage.path).map { |path| File.new(path, \"r+\") }); stage.hold(g%{n}, :%{by})",
                        call: "f%{n}.flock(File::LOCK_EX)", feed: "stage.release(g%{n})"),
    "mutex_sleep" => Wait.new(setup: "m%{n} = Thread::Mutex.new", call: "m%{n}.synchronize { m%{n}.sleep; m%{n}.owned? }",
                              timed: "m%{n}.synchronize { m%{n}.sleep(%{s}); m%{n}.owned? }"),
    "sleep" => Wait.new(setup: nil, call: "sleep", timed: "sleep(%{s}) && nil")
  }.freeze

  OTHERS = {
    "join" => Wait.new(setup: "q%{n} = Thread::Queue.new; t%{n} = stage.thread { q%{n}.pop }", call: "t%{n}.join.value",
                       feed: "q%{n} << :item", timed: "t%{n}.join(%{s})", shared: :all),
    "value" => Wait.new(setup: "q%{n} = Thread::Queue.new; t%{n} = stage.thread { q%{n}.pop }", call: "t%{n}.value",
                        feed: "q%{n} << :item", shared: :all),
    "process_wait" => Wait.new(setup: "r%{n}, w%{n} = stage.own(*IO.pipe); p%{n} = stage.child(r%{n})",
                               call: "Process.wait2(p%{n}).last.success?", feed: "w%{n}.close"),
    "detach" => Wait.new(setup: "r%{n}, w%{n} = stage.own(*IO.pipe); p%{n} = Process.detach(stage.child(r%{n}))",
                         call: "p%{n}.value.success?", feed: "w%{n}.close", timed: "p%{n}.join(%{s})"),
    "system" => Wait.new(setup: "r%{n}, w%{n} = stage.own(*IO.pipe)", call: "system(\"cat\", in: r%{n}, out: File::NULL)",
                         feed: "w%{n}.close")
  }.freeze

  WAITS = TRANSFERS.merge(WATCHES, OTHER_TRANSFERS, LOCKS, OTHERS).freeze
end
