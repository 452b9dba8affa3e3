# frozen_string_literal: true

require_relative "helper"
require "open3"
require "tmpdir"

# Every code block of README.md and docs/ runs: each Ruby block in a child process that prints nothing on stderr.
class TestDocs < ReactorTest
  Block = Struct.new(:path, :line, :language, :needs, :code) do
    def name = "test_#{File.basename(path, ".md").tr("-", "_").downcase}_line_#{line}"
  end

  PAGES = [File.join(ROOT, "README.md"), File.join(ROOT, "CONTRIBUTING.md"), *Dir[File.join(ROOT, "docs", "*.md")]].freeze

  BLOCKS = PAGES.flat_map do |path|
    text = File.read(path)
    text.to_enum(:scan, /^```(\w+)(?: (\w+))?\n(.*?)^```$/m).map do
      language, needs, code = $~.captures
      Block.new(path, $~.pre_match.count("\n") + 2, language, needs, code)
    end
  end

  BLOCKS.select { |block| block.language == "ruby" }.each do |block|
    define_method(block.name) { run_block(block) }
  end

  # The servers among them, before whose clients one connects and leaves, and another resets its connection: they must neither report it,
  # nor end, nor spin.
  LISTENER = /^ *(\w+) = TCPServer\.new\("127\.0\.0\.1", 0\)\n/
  BLOCKS.select { |block| block.language == "ruby" && block.code.match?(/^ +loop do|Reactor::(?:Server|Rack)/) && block.code.match?(LISTENER) }.each do |block|
    define_method("#{block.name}_when_a_client_leaves_early") do
      early = block.dup
      early.code = block.code.sub(LISTENER) { "#{$&}2.times { |linger| TCPSocket.new(\"127.0.0.1\", #{$1}.addr[1]).tap { |early| early.setsockopt(:SOCKET, :LINGER, [linger, 0].pack(\"ii\")) }.close }\n" }
      run_block(early)
    end
  end

  def run_block(block)
    return check_gemfile(block.code) if block.needs == "gemfile"

    # CI installs neither.
    return RubyVM::InstructionSequence.compile(block.code) if %w[rails sidekiq].include?(block.needs) && !loads?(block.needs)

    skip "#{block.needs} cannot be loaded (bin/setup --peers)" if block.needs && !loads?(block.needs)
    child = nil
    Dir.mktmpdir do |directory|
      path = File.join(directory, "example.rb")
      File.write(path, block.code)
      child = run_child("load #{path.inspect}", within: TEST_TIMEOUT, gems: true)
    end
    assert_equal "", child.err, block.code
    assert_predicate child.status, :success?, "#{block.path}:#{block.line}\n#{block.code}\n#{child.out}"
    check_comments(block, child.out)
  end

  # A comment after puts is the expected output, if it is plain text.
  def check_comments(block, out)
    block.code.scan(/^ *puts .*? # ([\w ]+)$/).flatten.each { |expected| assert_includes out, expected } unless block.code.include?("retry")
  end

  def loads?(library)
    libraries = %w[rails sidekiq].include?(library) ? [library] : [library, "reactor/async"]
    system({ "REACTOR_BACKEND" => BACKEND.to_s }, RbConfig.ruby, "-I", LIB, *libraries.map { |name| "-r#{name}" }, "-e", "", err: File::NULL)
  end

  # A Gemfile line that names this gem.
  def check_gemfile(code)
    named = []
    file = Object.new
    file.define_singleton_method(:gem) { |name, **| named << name }
    file.instance_eval(code)
    assert_equal ["reactor-loop"], named
  end

  def test_every_block_has_a_known_language
    assert_operator BLOCKS.count { |block| block.language == "ruby" }, :>, 20
    assert_equal [], BLOCKS.map(&:language).uniq - %w[ruby sh text rust toml nginx]
  end

  BLOCKS.select { |block| %w[sh toml nginx].include?(block.language) }.each do |block|
    define_method("#{block.name}_of_#{block.language}") { assert_nil fault(block.language, block.code), "#{block.path}:#{block.line}" }
  end

  def test_a_broken_block_is_found
    ["rake install; fi", "bin/nothing", "rackup -s reactor && teleport", "rake teleport"].each { |code| refute_nil fault("sh", code), code }
    refute_nil fault("toml", "[dependencies]\nreactor-loop = { path = \"../reactor\"\n")
    refute_nil fault("nginx", "server {\n  proxy_pas http://app;\n}\n")
  end

  # @return [String, nil] what the command says that reads such a block
  def fault(language, code)
    Dir.mktmpdir do |directory|
      path = File.join(directory, { "sh" => "block.sh", "toml" => "Cargo.toml", "nginx" => "nginx.conf" }.fetch(language))
      case language
      when "sh" then File.write(path, code)
      when "toml"
        Dir.mkdir(File.join(directory, "src"))
        File.write(File.join(directory, "src/lib.rs"), "")
        File.write(path, "[package]\nname = \"block\"\nversion = \"0.1.0\"\n#{code}")
      else File.write(path, "pid #{directory}/pid;\nerror_log stderr;\nevents {}\nhttp {\n#{code}}\n")
      end
      language == "sh" ? said("sh", "-n", path) || unknown_command(code) : said(*READERS.fetch(language), path)
    end
  end

  READERS = {
    "toml" => %w[cargo metadata --offline --no-deps --format-version 1 --manifest-path],
    "nginx" => %w[nginx -t -q -c]
  }.freeze

  # Of a line without its comment, and of what follows an operator or an assignment.
  COMMAND = /(?:^|&& |\| |; )(?:[A-Z_]+=\S+ )*(?:bundle exec )?([\w.\/-]+)(?: (\w+))?/

  def unknown_command(code)
    code.gsub(/ *#.*/, "").scan(COMMAND).find do |command, argument|
      case command
      when %r{\Abin/} then !File.executable?(File.join(ROOT, command))
      when "rake" then argument != "solid_queue" && said(RbConfig.ruby, "-S", "rake", "--dry-run", argument)
      else !command.match?(/\A(?:gem|rackup|ruby[\d.]*)\z/)
      end
    end&.join(" ")
  end

  def said(*command)
    out, status = Open3.capture2e(*command, chdir: ROOT)
    out unless status.success?
  rescue Errno::ENOENT
    skip "#{command.first} is not installed"
  end

  def test_named_commands_and_files_exist
    PAGES.each do |path|
      File.read(path).scan(%r{\bbin/([\w-]+)}).flatten.uniq.each { |name| assert_path_exists File.join(ROOT, "bin", name), path }
      File.read(path).scan(%r{\b((?:examples|lib|docs|tests|ext|src)/[\w/-]+\.\w+)}).flatten.uniq.each { |name| assert_path_exists File.join(ROOT, name), path }
    end
  end

  # The table of hooks names the files in which they are.
  def test_the_hooks_are_where_the_architecture_says
    extension = File.read(File.join(ROOT, "ext/reactor/src/lib.rs"))
    rows = File.read(File.join(ROOT, "docs/architecture.md"))[/^## Where the hooks are$.*?(?=^## )/m].scan(/^\| (`.*`) \| (`.*`) \|$/)
    assert_operator rows.size, :>, 10
    rows.each do |hooks, native|
      hooks.scan(/\w+/) do |hook|
        next assert_includes(Reactor::Scheduler.instance_method(hook).source_location.first, "/#{native.delete("`")}") if native.include?(".rb")

        *file, function = extension[/"#{hook}",\s+(?:(?:with_block::)?method!?\()?((?:\w+::)?\w+)/, 1].split("::")
        file = file.first || native[/\w+/] # lib.rs names a few functions without their file
        assert_equal native, "`#{file}.rs`", hook
        assert_match(/^pub fn #{function}\b/, File.read(File.join(ROOT, "ext/reactor/src/hooks/#{file}.rs")), hook)
      end
    end
  end

  # Each test that docs/testing.md lists for a promise is in the file it names. `…` stands for what a loop inserts.
  def test_the_tests_of_the_promises_are_there
    rows = File.read(File.join(ROOT, "docs/testing.md"))[/^\| promise \| test \|\n.*?\n(.*)\z/m, 1].lines
    assert_operator rows.size, :>, 40
    rows.each do |row|
      file, *tests = row.split(" | ", 2).last.scan(/`([^`]+)`/).flatten
      source = File.read(File.join(ROOT, file.include?("/") ? file : "tests/ruby/#{file}"))
      refute_empty tests, row
      tests.each { |test| assert defines?(source, test), "#{file} has no #{test}" }
    end
  end

  def defines?(source, test)
    return source.match?(/^ *(?:def|fn) #{test}\b/) unless test.include?("…")

    source.match?(/define_method.*#{test.split("…", -1).map { |part| Regexp.escape(part) }.join("#\\{\\w+\\}")}/)
  end

  # A link to a heading leads to an existing one, with the anchor that GitHub and bin/docs generate.
  def test_links_to_headings_have_existing_targets
    PAGES.each do |path|
      File.read(path).scan(/\]\((?!https?:)([^)#]*)#([^)]+)\)/).each do |file, heading|
        text = File.read(file.empty? ? path : File.expand_path(file, File.dirname(path)))
        headings = text.scan(/^#+ (.+)$/).flatten.map { |words| words.downcase.gsub(/[^\w\- ]/, "").tr(" ", "-") }
        assert_includes headings, heading, path
      end
    end
  end

  # Each page of docs/ can be reached from README.
  def test_every_page_is_linked
    linked = File.read(PAGES.first).scan(%r{\(docs/([\w-]+\.md)\)}).flatten
    assert_equal Dir.children(File.join(ROOT, "docs")).grep(/\.md\z/).sort, linked.uniq.sort
  end

  def test_relative_links_have_existing_targets
    PAGES.each do |path|
      File.read(path).scan(/(?:\]\(|src="|srcset=")(?!https?:)([^)#"]+)/).flatten.each { |link| assert_path_exists File.expand_path(link, File.dirname(path)), "#{path}: #{link}" }
    end
  end
end
