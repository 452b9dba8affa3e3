# frozen_string_literal: true

# Builds the documentation as one site: guides, Ruby API (YARD), Rust crate (rustdoc). bin/docs runs it.
require "cgi/escape"
require "fileutils"
require "kramdown"
require "kramdown-parser-gfm"
require "tempfile"
require "yard"
require_relative "links"

module Docs
  ROOT = File.expand_path("../..", __dir__)

  # One page of Markdown, as it is found on the site.
  Guide = Struct.new(:source, :target, :title) do
    def text = File.read(File.join(ROOT, source))
  end

  # The whole site, below one directory.
  class Site
    ORDER = %w[getting-started promises servers gems rails backends migrating production
               testing-your-code performance measured comparison architecture testing patches crate].freeze
    AREAS = { "Guides" => "index.html", "Ruby" => "ruby/index.html", "Rust" => "rust/reactor/index.html" }.freeze

    def initialize(directory)
      @directory = File.expand_path(directory)
      @guides = guides
    end

    def build
      FileUtils.rm_rf(@directory)
      FileUtils.mkdir_p(@directory)
      write_guides
      write_ruby
      write_rust
      Links.new(@directory).check
    end

    private

    # @raise [RuntimeError] if a page has no place in the order
    def guides
      pages = Dir.children(File.join(ROOT, "docs")).grep(/\.md\z/).map { |file| File.basename(file, ".md") }
      raise "no place in ORDER: #{(pages - ORDER).join(', ')}; no page: #{(ORDER - pages).join(', ')}" unless pages.sort == ORDER.sort

      sources = { "README.md" => "index.html", **ORDER.to_h { |name| ["docs/#{name}.md", "#{name}.html"] },
                  "CHANGELOG.md" => "changelog.html", "CONTRIBUTING.md" => "contributing.html", "bench/NOTES.md" => "notes.html", "LICENSE" => "license.html" }
      sources.map do |source, target|
        guide = Guide.new(source, target)
        guide.title = source == "LICENSE" ? "License" : guide.text[/^# (.+)/, 1]
        guide
      end
    end

    def write_guides
      style("site.css", "bar.css", "guide.css")
      Dir[File.join(ROOT, "docs", "*.svg")].each { |file| FileUtils.cp(file, @directory) }
      FileUtils.cp_r(File.join(ROOT, "docs", "measured"), @directory)
      @guides.each { |guide| File.write(File.join(@directory, guide.target), page(guide)) }
    end

    def page(guide)
      body = guide.source == "LICENSE" ? "<h1>License</h1><pre>#{CGI.escapeHTML(guide.text)}</pre>" : html(guide)
      <<~HTML
        <!doctype html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <meta name="color-scheme" content="light dark">
        <title>#{CGI.escapeHTML(guide.title)}#{" – reactor" unless guide.title == 'reactor'}</title>
        <link rel="stylesheet" href="site.css">
        </head>
        <body>
        #{bar('', 'Guides')}
        <div class="columns">
        <nav class="guides"><details><summary>Guides</summary><ul>#{menu(guide)}</ul></details></nav>
        <main>#{body}</main>
        </div>
        </body>
        </html>
      HTML
    end

    # The bar above every page of the site.
    def bar(up, here)
      links = AREAS.map { |name, target| %(<a href="#{up}#{target}"#{' aria-current="true"' if name == here}>#{name}</a>) }
      %(<header class="site-bar"><a class="site-name" href="#{up}index.html">reactor</a>#{links.join}</header>)
    end

    def menu(current)
      @guides.map { |guide| %(<li><a href="#{guide.target}"#{' aria-current="page"' if guide == current}>#{CGI.escapeHTML(guide.title)}</a></li>) }.join
    end

    def html(guide)
      # The second word behind a fence is for the tests. Kramdown takes the lines beside a comment for one paragraph with it.
      text = guide.text.gsub(/^```(\w+) \w+$/, '```\1').gsub(/^<!--.*-->$/, "\n\\0\n")
      document = Kramdown::Document.new(text, input: "GFM", hard_wrap: false, syntax_highlighter: nil, auto_id_prefix: "")
      warn "#{guide.source}: #{document.warnings.join('; ')}" unless document.warnings.empty?
      plain = document.to_html
      raise "#{guide.source}: a table is shown as text: #{$&}" if plain[/<p>\|.{,60}/]

      wrapped = plain.gsub(%r{<table>.*?</table>}m) { |table| %(<div class="scroll">#{table}</div>) }
      links(coloured(wrapped), guide)
    end

    def coloured(text)
      text.gsub(%r{<pre><code class="language-ruby[^"]*">(.*?)</code></pre>}m) { %(<pre class="code ruby"><code>#{Highlight.ruby(CGI.unescapeHTML($1))}</code></pre>) }
    end

    # Addresses of Markdown files become those of their pages; pictures and data are beside them.
    def links(text, guide)
      from = File.dirname(guide.source)
      text.gsub(/(?<=href="|src="|srcset=")(?!https?:|#)([^"#]+)/) do |link|
        path = File.join(from, link).delete_prefix("./").gsub(%r{[^/]+/\.\./}, "")
        page = @guides.find { |other| other.source == path }
        page ? page.target : path.delete_prefix("docs/")
      end
    end

    def write_ruby
      log = YARD::Logger.instance
      log.show_progress = false
      # YARD warns where a module is prepended to a class that it does not know. The adapters do nothing else, and docs/gems.md has them.
      YARD::CLI::Yardoc.run("--no-yardopts", "--no-stats", "--no-cache", "--no-save", "--no-progress", "--markup", "markdown", "--title", "reactor: Ruby", "--output-dir", File.join(@directory, "ruby"),
                            "--readme", "docs/site/ruby.md", "--no-private", "--hide-api", "private", "--exclude", "lib/reactor/adapters/", "lib/**/*.rb")
      raise "YARD has warned" if log.warned

      check_hooks
      style("ruby/css/site.css", "bar.css", "yard.css")
      Dir[File.join(@directory, "ruby", "**", "*.html")].each { |file| dress(file) }
    end

    # The reference has every hook that is written in Rust, as docs/site/ruby.md says.
    def check_hooks
      page = File.read(File.join(@directory, "ruby/Reactor/NativeScheduler.html"))
      table = File.read(File.join(ROOT, "docs/architecture.md"))[/^## Where the hooks are$.*?(?=^## )/m]
      hooks = table.scan(/^\| (`.*`) \| `\w+\.rs` \|$/).join.scan(/\w+/)
      missing = hooks.reject { |hook| page.include?("id=\"#{hook}-instance_method\"") }
      raise "the reference lacks #{missing.join(", ")}" if missing.any? || hooks.empty?
    end

    def style(target, *sources) = File.write(File.join(@directory, target), sources.map { |source| File.read(File.join(__dir__, source)) }.join)

    # YARD's own links to the source need an old jQuery: with a newer one they hide themselves.
    SOURCE_LINKS = <<~HTML
      <script>
      document.addEventListener("click", (event) => {
        if (!event.target.matches(".toggleSource")) return;
        event.preventDefault();
        event.stopPropagation();
        const code = event.target.closest(".showSource").nextElementSibling;
        code.style.display = code.style.display === "table" ? "none" : "table";
      }, true);
      </script>
    HTML
    private_constant :SOURCE_LINKS

    # Puts the bar above a page of YARD's.
    def dress(file)
      up = "../" * (file.delete_prefix("#{@directory}/").count("/"))
      text = File.read(file)
      return if text.include?('class="full_list"') || text.include?("<frameset") || file.end_with?("_list.html")

      text = text.sub("</head>", %(<link rel="stylesheet" href="#{up}ruby/css/site.css">#{SOURCE_LINKS}</head>)).sub(%r{<div id="main"[^>]*>}) { "#{$&}#{bar(up, 'Ruby')}" }
      File.write(file, text)
    end

    def write_rust
      target = File.join(ROOT, "target")
      Tempfile.create(["bar", ".html"]) do |head|
        head.write("<style>#{File.read(File.join(__dir__, 'bar.css'))}</style>")
        head.close
        system({ "RUSTDOCFLAGS" => "--html-in-header #{head.path} -Dwarnings", "CARGO_TARGET_DIR" => target },
               "cargo", "doc", "--quiet", "--no-deps", "--package", "reactor-loop", "--lib", "--all-features", chdir: ROOT, exception: true)
      end
      FileUtils.cp_r(File.join(target, "doc"), File.join(@directory, "rust"))
      # rustdoc's help and settings lead to an index of all crates.
      File.write(File.join(@directory, "rust", "index.html"), %(<!doctype html><meta http-equiv="refresh" content="0; url=reactor/index.html"><a href="reactor/index.html">reactor</a>\n))
      Dir[File.join(@directory, "rust", "**", "*.html")].each do |file|
        up = "../" * file.delete_prefix("#{@directory}/").count("/")
        File.write(file, File.read(file).sub(/<main>/) { "<main>#{bar(up, 'Rust')}" })
      end
    end
  end

  # Ruby code with the classes of YARD's colours.
  module Highlight
    Context = Struct.new(:options) do
      include YARD::Templates::Helpers::HtmlHelper
      include YARD::Templates::Helpers::HtmlSyntaxHighlightHelper

      def object = YARD::Registry.root
    end

    def self.ruby(code) = Context.new(YARD::Templates::TemplateOptions.new.tap { |options| options.highlight = true }).html_syntax_highlight_ruby(code)
  end
end

module YARD
  # Kramdown for the comments of lib/: Markdown as GitHub reads it, where two spaces are enough for a block of code.
  class GithubMarkdown < Kramdown::Document
    def initialize(text, options = {}) = super(indent(text), options.merge(input: "GFM", hard_wrap: false, syntax_highlighter: nil))

    private

    def indent(text)
      code = list = false
      before = ""
      text.lines.map do |line|
        list = line.match?(/\A(?:[-*]|\d+\.) /) unless line.match?(/\A\s/)
        code = line.match?(/\A {2,3}\S/) && before.strip.empty? && !list if !code || line.match?(/\A\S/)
        before = line
        code && !line.strip.empty? ? "    #{line}" : line
      end.join
    end
  end
  Templates::Helpers::MarkupHelper::MARKUP_PROVIDERS[:markdown].unshift({ lib: :kramdown, const: "YARD::GithubMarkdown" })
end
